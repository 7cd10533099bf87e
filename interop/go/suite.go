package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// program is the name of this program in the output.
var program = os.Getenv("INTEROP_PROGRAM")

type scenarioFunc struct {
	name string
	run  func(s *scenario)
}

// failure is what a failed assertion panics with.
type failure string

func fail(format string, args ...any) {
	panic(failure(fmt.Sprintf(format, args...)))
}

func check(condition bool, format string, args ...any) {
	if !condition {
		fail(format, args...)
	}
}

func checkEqual[T comparable](expected, actual T, what string) {
	check(expected == actual, "%s: expected <%v>, got <%v>", what, expected, actual)
}

func must[T any](value T, err error) T {
	if err != nil {
		fail("%v", err)
	}
	return value
}

func mustNot(err error) {
	if err != nil {
		fail("%v", err)
	}
}

// await waits until the condition holds.
func await(seconds int, what string, condition func() bool) {
	deadline := time.Now().Add(time.Duration(seconds) * time.Second)
	for !condition() {
		check(time.Now().Before(deadline), "not within %d s: %s", seconds, what)
		time.Sleep(20 * time.Millisecond)
	}
}

// runSuite runs all scenarios, or those named, at the same time, prints a line for each, and returns the exit status.
func runSuite(scenarios []scenarioFunc, only []string) int {
	var output sync.Mutex
	var running sync.WaitGroup
	status := 0
	for _, f := range scenarios {
		if len(only) > 0 && !contains(only, f.name) {
			continue
		}
		running.Add(1)
		go func() {
			defer running.Done()
			start := time.Now()
			problem := runOne(f)
			seconds := time.Since(start).Seconds()
			output.Lock()
			defer output.Unlock()
			if problem == "" {
				fmt.Printf("PASS  %s/%s  %.1f s\n", program, f.name, seconds)
				return
			}
			status = 1
			fmt.Printf("FAIL  %s/%s  %.1f s\n", program, f.name, seconds)
			for _, line := range strings.Split(problem, "\n") {
				fmt.Println("      " + line)
			}
		}()
	}
	running.Wait()
	return status
}

// runOne returns what went wrong, or nothing.
func runOne(f scenarioFunc) (problem string) {
	s := &scenario{name: f.name, namesrv: os.Getenv("INTEROP_NAMESRV"), broker: "broker"}
	defer func() {
		if p := recover(); p != nil {
			problem = fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	defer s.close()
	f.run(s)
	return ""
}

func contains(list []string, element string) bool {
	for _, e := range list {
		if e == element {
			return true
		}
	}
	return false
}
