package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// rebalanceKill: two consumers share the queues; one is a process of its own, which is killed.
func rebalanceKill(s *scenario) {
	r := newRounds(s)
	var survivor inbox
	s.consume(s.topic(), s.group(""), "*", survivor.receive)
	victim := startConsumerProcess(s)
	r.untilShared(survivor.bodies, victim.bodies)
	victim.kill()
	r.untilTakenOver(survivor.bodies)
	// At least once: what the victim had received without saying so to the broker comes again.
	r.checkNothingLost(survivor.bodies(), victim.bodies())
}

func rebalanceShutdown(s *scenario) {
	r := newRounds(s)
	var survivor, leaver inbox
	s.consume(s.topic(), s.group(""), "*", survivor.receive)
	leaving := s.consume(s.topic(), s.group(""), "*", leaver.receive)
	r.untilShared(survivor.bodies, leaver.bodies)
	mustNot(leaving.Shutdown())
	r.untilTakenOver(survivor.bodies)
	r.checkNothingLost(survivor.bodies(), leaver.bodies())
}

// rounds sends rounds of one message to each queue and looks at who receives which.
type rounds struct {
	scenario *scenario
	producer rocketmq.Producer
	sent     []string
	round    int
}

func newRounds(s *scenario) *rounds {
	s.createTopic(s.topic(), queues)
	r := &rounds{scenario: s, producer: s.producer(toQueue())}
	r.send()
	return r
}

func (r *rounds) send() []string {
	var list []string
	for queueID := 0; queueID < queues; queueID++ {
		body := fmt.Sprintf("round %03d queue %d", r.round, queueID)
		r.scenario.sendTo(r.producer, queueID, body)
		list = append(list, body)
	}
	r.sent = append(r.sent, list...)
	r.round++
	return list
}

// untilShared: until each has two of the four queues for a while; then no message may be received twice any more.
func (r *rounds) untilShared(a, b func() []string) {
	await(120, "two consumers share four queues", func() bool { return r.isShared(a, b) && r.isShared(a, b) && r.isShared(a, b) })
	var settled, received []string
	for i := 0; i < 5; i++ {
		settled = append(settled, r.sendAndAwait(a, b)...)
	}
	for _, body := range append(a(), b()...) {
		if contains(settled, body) {
			received = append(received, body)
		}
	}
	checkSame(settled, received, "received by both together")
	checkEqual(10, count(settled, a()), "share of the one")
}

func (r *rounds) isShared(a, b func() []string) bool {
	list := r.sendAndAwait(a, b)
	// The one that has lost a queue may still have a pull under way for it.
	time.Sleep(300 * time.Millisecond)
	return count(list, a()) == 2 && count(list, b()) == 2
}

func (r *rounds) untilTakenOver(survivor func() []string) {
	await(120, "the survivor has all queues", func() bool {
		list := r.send()
		time.Sleep(500 * time.Millisecond)
		return count(list, survivor()) == queues
	})
}

func (r *rounds) checkNothingLost(a, b []string) {
	received := append(a, b...)
	await(1, "every message received by at least one", func() bool { return count(r.sent, received) == len(r.sent) })
}

func (r *rounds) sendAndAwait(a, b func() []string) []string {
	list := r.send()
	await(60, strings.Join(list, ", "), func() bool { return count(list, a())+count(list, b()) >= len(list) })
	return list
}

// count tells how many of the bodies have been received.
func count(list, received []string) int {
	n := 0
	for _, body := range list {
		if contains(received, body) {
			n++
		}
	}
	return n
}

// consumerProcess is a push consumer in a process of its own, so that it can be killed.
type consumerProcess struct {
	command *exec.Cmd
	mutex   sync.Mutex
	lines   []string
}

func startConsumerProcess(s *scenario) *consumerProcess {
	p := &consumerProcess{command: exec.Command(must(os.Executable()), "consume", s.namesrv, s.topic(), s.group(""))}
	p.command.Stderr = os.Stderr
	must(p.command.StdinPipe())
	output := must(p.command.StdoutPipe())
	mustNot(p.command.Start())
	s.atEnd(p.kill)
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.mutex.Lock()
			p.lines = append(p.lines, lines.Text())
			p.mutex.Unlock()
		}
	}()
	return p
}

func (p *consumerProcess) bodies() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return append([]string(nil), p.lines...)
}

func (p *consumerProcess) kill() {
	p.command.Process.Kill()
	p.command.Wait()
}

// consumeAndPrint is the main function of a consumerProcess. It prints the body of each message.
func consumeAndPrint(namesrv, topic, group string) {
	c := must(rocketmq.NewPushConsumer(consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		consumer.WithGroupName(group), consumer.WithInstance(instance()), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)))
	receive := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			fmt.Println(string(message.Body))
		}
		return consumer.ConsumeSuccess, nil
	}
	mustNot(c.Subscribe(topic, consumer.MessageSelector{}, receive))
	mustNot(c.Start())
	// Its end of the pipe is closed when the parent ends.
	io.Copy(io.Discard, os.Stdin)
}
