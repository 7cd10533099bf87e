// Scenarios of the official Go client against one cluster.
package main

import (
	"fmt"
	"os"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// The slow ones first.
var scenarios = []scenarioFunc{
	{"consume-from-where", consumeFromWhere},
	{"restart", restart},
	{"retry", retry},
	{"retry-delay-level", retryDelayLevel},
	{"dlq", deadLetter},
	{"rebalance-kill", rebalanceKill},
	{"rebalance-shutdown", rebalanceShutdown},
	{"delay-level", delayLevel},
	{"send-sync", sendSync},
	{"send-async", sendAsync},
	{"send-oneway", sendOneway},
	{"send-batch", sendBatch},
	{"send-large", sendLarge},
	{"send-selector", sendSelector},
	{"push-concurrent", pushConcurrent},
	{"push-orderly", pushOrderly},
	{"push-broadcasting", pushBroadcasting},
	{"tag-filter", tagFilter},
	{"pull", pull},
	{"pull-from", pullFrom},
}

func main() {
	mustNot(rlog.SetOutputPath("client.log"))
	args := os.Args[1:]
	switch {
	case len(args) == 1 && args[0] == "--list":
		for _, s := range scenarios {
			fmt.Println(program + "/" + s.name)
		}
	case len(args) == 4 && args[0] == "consume":
		consumeAndPrint(args[1], args[2], args[3])
	default:
		os.Exit(runSuite(scenarios, args))
	}
}
