package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	queues = 4
	// settle is how long to look for what should not arrive after all that should has.
	settle = time.Second
)

var (
	background = context.Background()
	instances  atomic.Int64
)

// scenario is a running scenario: its own topic and group names, and clients that are shut down at its end.
type scenario struct {
	name    string
	namesrv string
	broker  string
	closers []func()
}

func (s *scenario) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}

func (s *scenario) atEnd(f func()) { s.closers = append(s.closers, f) }

// useCluster makes clients that are created from now on use the cluster of PREFIXnamesrv and PREFIXbroker.
func (s *scenario) useCluster(prefix string) {
	s.namesrv = serverAddress(prefix + "namesrv")
	s.broker = prefix + "broker"
}

func serverAddress(server string) string {
	address := must(os.ReadFile(filepath.Join(os.Getenv("INTEROP_SERVERS_DIR"), server, "address")))
	return strings.TrimSpace(string(address))
}

// servers runs `interop/servers ACTION DIR-OF-SERVER`.
func servers(action, server string) {
	dir := filepath.Join(os.Getenv("INTEROP_SERVERS_DIR"), server)
	command := exec.Command(os.Getenv("INTEROP_SERVERS"), action, dir)
	// A file, not a pipe: a server that is started would keep the pipe open.
	log := must(os.Create(filepath.Join(dir, action+".out")))
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	mustNot(command.Run())
}

func (s *scenario) topic() string { return program + "-" + s.name }

func (s *scenario) group(suffix string) string { return s.topic() + "-" + suffix + "-group" }

// createTopic makes a topic known to broker and name server; this client can't subscribe to one that does not exist.
func (s *scenario) createTopic(topic string, queueCount int) {
	a := must(admin.NewAdmin(admin.WithResolver(s.resolver())))
	defer a.Close()
	mustNot(a.CreateTopic(background, admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(serverAddress(s.broker)),
		admin.WithReadQueueNums(queueCount), admin.WithWriteQueueNums(queueCount)))
	await(30, "route of "+topic, func() bool { return s.routeExists(topic) })
}

func (s *scenario) routeExists(topic string) bool {
	a := must(admin.NewAdmin(admin.WithResolver(s.resolver())))
	defer a.Close()
	found, err := a.FetchPublishMessageQueues(background, topic)
	return err == nil && len(found) > 0
}

func (s *scenario) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{s.namesrv})
}

// instance is a name of its own for each client, since clients of one name share connections and shut each other down.
func instance() string { return fmt.Sprintf("%d-%d", os.Getpid(), instances.Add(1)) }

// Producers

func (s *scenario) producer(options ...producer.Option) rocketmq.Producer {
	// The broker may listen already but not be known to the name server.
	await(60, "a broker has registered", func() bool { return s.routeExists("TBW102") })
	p := must(rocketmq.NewProducer(append([]producer.Option{producer.WithNsResolver(s.resolver()),
		producer.WithGroupName(s.group("producer")), producer.WithInstanceName(instance()), producer.WithRetry(2)}, options...)...))
	mustNot(p.Start())
	s.atEnd(func() { p.Shutdown() })
	return p
}

// toQueue sends each message to the queue that it names.
func toQueue() producer.Option { return producer.WithQueueSelector(producer.NewManualQueueSelector()) }

func (s *scenario) message(body string) *primitive.Message {
	return primitive.NewMessage(s.topic(), []byte(body))
}

func (s *scenario) send(p rocketmq.Producer, bodies ...string) []*primitive.SendResult {
	var results []*primitive.SendResult
	for _, body := range bodies {
		result := must(p.SendSync(background, s.message(body)))
		checkEqual(primitive.SendOK, result.Status, "send status")
		results = append(results, result)
	}
	return results
}

// sendTo needs a producer with toQueue.
func (s *scenario) sendTo(p rocketmq.Producer, queueID int, bodies ...string) []*primitive.SendResult {
	var results []*primitive.SendResult
	for _, body := range bodies {
		message := s.message(body)
		message.Queue = s.queue(queueID)
		results = append(results, must(p.SendSync(background, message)))
	}
	return results
}

func (s *scenario) queue(queueID int) *primitive.MessageQueue {
	return &primitive.MessageQueue{Topic: s.topic(), BrokerName: "broker-a", QueueId: queueID}
}

func bodies(prefix string, count int) []string {
	var list []string
	for i := 0; i < count; i++ {
		list = append(list, fmt.Sprintf("%s %04d", prefix, i))
	}
	return list
}

// Consumers

type listener = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

// consume starts a push consumer that reads a topic from its beginning.
func (s *scenario) consume(topic, group, expression string, receive listener, options ...consumer.Option) rocketmq.PushConsumer {
	// The retry topic of a new group is created by its first heartbeat, after this client has asked for its route in vain; it
	// would look again only after 30 s.
	s.createTopic("%RETRY%"+group, 1)
	c := must(rocketmq.NewPushConsumer(append([]consumer.Option{consumer.WithNsResolver(s.resolver()), consumer.WithGroupName(group),
		consumer.WithInstance(instance()), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}, options...)...))
	mustNot(c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: expression}, receive))
	mustNot(c.Start())
	s.atEnd(func() { c.Shutdown() })
	return c
}

// inbox holds messages that consumers have received, in the order of reception.
type inbox struct {
	mutex    sync.Mutex
	messages []*primitive.MessageExt
}

// receive is a listener that takes every message successfully.
func (in *inbox) receive(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	in.add(messages)
	return consumer.ConsumeSuccess, nil
}

func (in *inbox) add(messages []*primitive.MessageExt) {
	in.mutex.Lock()
	defer in.mutex.Unlock()
	in.messages = append(in.messages, messages...)
}

func (in *inbox) all() []*primitive.MessageExt {
	in.mutex.Lock()
	defer in.mutex.Unlock()
	return append([]*primitive.MessageExt(nil), in.messages...)
}

func (in *inbox) bodies() []string { return bodiesOf(in.all()) }

func bodiesOf(messages []*primitive.MessageExt) []string {
	var list []string
	for _, message := range messages {
		list = append(list, string(message.Body))
	}
	return list
}

func (in *inbox) await(count, seconds int) {
	await(seconds, fmt.Sprintf("%d messages", count), func() bool { return len(in.all()) >= count })
}

// awaitExactly waits for as many messages as there are bodies, and then a while for any more: exactly these must have come.
func (in *inbox) awaitExactly(expected []string, seconds int) {
	deadline := time.Now().Add(time.Duration(seconds) * time.Second)
	for len(in.all()) < len(expected) && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(settle)
	checkSame(expected, in.bodies(), "received")
}

// checkSame compares without regard to order.
func checkSame(expected, actual []string, what string) {
	checkEqual(strings.Join(sorted(expected), ", "), strings.Join(sorted(actual), ", "), what)
}

func sorted(list []string) []string {
	copied := append([]string(nil), list...)
	sort.Strings(copied)
	return copied
}

// checkOrder compares with regard to order.
func checkOrder(expected, actual []string, what string) {
	checkEqual(strings.Join(expected, ", "), strings.Join(actual, ", "), what)
}
