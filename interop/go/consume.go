package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func pushConcurrent(s *scenario) {
	p := s.producer()
	all := bodies("concurrent", 200)
	s.send(p, all[:100]...)
	var in inbox
	s.consume(s.topic(), s.group(""), "*", in.receive)
	in.await(100, 60)
	s.send(p, all[100:]...)
	in.awaitExactly(all, 60)
}

// pushOrderly: orders are kept through sending by hash, storing and consuming, also when a message has to be tried again.
func pushOrderly(s *scenario) {
	s.createTopic(s.topic(), queues)
	p := s.producer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
	const orders, steps = 6, 20
	for step := 0; step < steps; step++ {
		for order := 0; order < orders; order++ {
			message := s.message(fmt.Sprintf("%d:%02d", order, step)).WithShardingKey(fmt.Sprint("order-", order))
			must(p.SendSync(background, message))
		}
	}
	var mutex sync.Mutex
	stepsOfOrder := map[string][]string{}
	suspended := false
	s.consume(s.topic(), s.group(""), "*", func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mutex.Lock()
		defer mutex.Unlock()
		for _, message := range messages {
			if string(message.Body) == "3:07" && !suspended {
				suspended = true
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			order, step, _ := strings.Cut(string(message.Body), ":")
			stepsOfOrder[order] = append(stepsOfOrder[order], step)
		}
		return consumer.ConsumeSuccess, nil
	}, consumer.WithConsumerOrder(true), consumer.WithSuspendCurrentQueueTimeMillis(200*time.Millisecond))

	received := func() (count int) {
		mutex.Lock()
		defer mutex.Unlock()
		for _, steps := range stepsOfOrder {
			count += len(steps)
		}
		return count
	}
	await(90, "all steps of all orders", func() bool { return received() >= orders*steps })
	time.Sleep(settle)
	check(suspended, "no message was suspended")
	var inOrder []string
	for step := 0; step < steps; step++ {
		inOrder = append(inOrder, fmt.Sprintf("%02d", step))
	}
	mutex.Lock()
	defer mutex.Unlock()
	checkEqual(orders, len(stepsOfOrder), "orders")
	for order, steps := range stepsOfOrder {
		checkOrder(inOrder, steps, "steps of order "+order)
	}
}

func pushBroadcasting(s *scenario) {
	p := s.producer()
	all := bodies("broadcast", 40)
	s.send(p, all[:20]...)
	var inboxes [2]inbox
	for i := range inboxes {
		s.consume(s.topic(), s.group(""), "*", inboxes[i].receive, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	for i := range inboxes {
		inboxes[i].await(20, 60)
	}
	s.send(p, all[20:]...)
	for i := range inboxes {
		inboxes[i].awaitExactly(all, 60)
	}
}

func tagFilter(s *scenario) {
	p := s.producer()
	// Aa and BB have the same hash code, which is all that a consume queue knows of a tag.
	tags := []string{"red", "green", "blue", "Aa", "BB"}
	for i := 0; i < 50; i++ {
		tag := tags[i%len(tags)]
		must(p.SendSync(background, s.message(fmt.Sprintf("%s %d", tag, i/len(tags))).WithTag(tag)))
	}
	expected := map[string][]string{"red": {"red"}, "red || blue": {"red", "blue"}, "Aa": {"Aa"}, "nobody": {}, "*": tags}
	inboxes := map[string]*inbox{}
	for expression := range expected {
		in := &inbox{}
		inboxes[expression] = in
		s.consume(s.topic(), s.group(fmt.Sprint(len(inboxes))), expression, in.receive)
	}
	for expression, tags := range expected {
		var bodies []string
		for _, tag := range tags {
			for i := 0; i < 10; i++ {
				bodies = append(bodies, fmt.Sprintf("%s %d", tag, i))
			}
		}
		inboxes[expression].awaitExactly(bodies, 60)
	}
}

// consumeFromWhere: where a new group starts in a topic whose oldest messages are deleted. Its broker has files of 1 MiB in its
// commit log and deletes each when it is full; a real one begins with that a minute after its start.
func consumeFromWhere(s *scenario) {
	s.useCluster("small-files-")
	s.createTopic(s.topic(), 1)
	p := s.producer()
	const fillers = 16
	for i := 0; i < fillers; i++ {
		must(p.SendSync(background, primitive.NewMessage(s.topic(), incompressible(100_000))))
	}
	old, recent := bodies("old", 12), bodies("recent", 12)
	s.send(p, old...)
	// A consumer's time stamp counts in seconds, and this client takes it for UTC.
	time.Sleep(2100 * time.Millisecond)
	timestamp := time.Now().UTC().Format("20060102150405")
	time.Sleep(100 * time.Millisecond)
	s.send(p, recent...)
	puller := s.pullConsumer(s.group("puller"))
	var min int64
	await(120, "the first messages are deleted", func() bool {
		min = must(puller.PullFrom(background, s.queue(0), fillers, 1)).MinOffset
		time.Sleep(500 * time.Millisecond)
		return min > 0
	})
	check(min < fillers, "only full files are deleted: minimum %d", min)

	start := func(name string, where consumer.ConsumeFromWhere) *inbox {
		in := &inbox{}
		s.consume(s.topic(), s.group(name), "*", in.receive, consumer.WithConsumeFromWhere(where), consumer.WithConsumeTimestamp(timestamp))
		return in
	}
	fromFirst := start("first", consumer.ConsumeFromFirstOffset)
	fromTimestamp := start("timestamp", consumer.ConsumeFromTimestamp)
	fromLast := start("last", consumer.ConsumeFromLastOffset)
	fromFirst.await(fillers-int(min)+24, 90)
	fromTimestamp.await(12, 60)
	// When the last one has found its place can only be seen by what it receives.
	var later []string
	await(60, "the consumer from the last offset receives something", func() bool {
		later = append(later, fmt.Sprint("later ", len(later)))
		s.send(p, later[len(later)-1])
		time.Sleep(200 * time.Millisecond)
		return len(fromLast.all()) > 0
	})
	fromTimestamp.awaitExactly(append(append([]string{}, recent...), later...), 60)
	fromFirst.await(fillers-int(min)+24+len(later), 60)
	for _, message := range fromFirst.all() {
		check(message.QueueOffset >= min, "offset %d does not exist any more", message.QueueOffset)
	}
	for _, body := range fromLast.bodies() {
		check(strings.HasPrefix(body, "later"), "from the last: %s", body)
	}
}
