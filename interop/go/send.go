package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func sendSync(s *scenario) {
	p := s.producer()
	results := map[string]*primitive.SendResult{}
	for i := 0; i < 20; i++ {
		message := s.message(fmt.Sprint("sync ", i)).WithTag(fmt.Sprint("tag", i%3)).WithKeys([]string{fmt.Sprint("key", i)})
		message.Flag = int32(i)
		message.WithProperty("umlaut", fmt.Sprint("größer ", i))
		result := must(p.SendSync(background, message))
		checkEqual(primitive.SendOK, result.Status, "send status")
		results[string(message.Body)] = result
	}
	var in inbox
	s.consume(s.topic(), s.group(""), "*", in.receive)
	in.await(20, 60)
	for _, message := range in.all() {
		i := message.Flag
		result := results[string(message.Body)]
		check(result != nil, "received twice or never sent: %s", message.Body)
		delete(results, string(message.Body))
		checkEqual(fmt.Sprint("sync ", i), string(message.Body), "body")
		checkEqual(result.MsgID, message.MsgId, "unique id")
		checkEqual(result.OffsetMsgID, message.OffsetMsgId, "offset id")
		checkEqual(result.MessageQueue.QueueId, message.Queue.QueueId, "queue")
		checkEqual(result.QueueOffset, message.QueueOffset, "queue offset")
		checkEqual(fmt.Sprint("tag", i%3), message.GetTags(), "tag")
		checkEqual(fmt.Sprint("key", i), strings.TrimSpace(message.GetKeys()), "key")
		checkEqual(fmt.Sprint("größer ", i), message.GetProperty("umlaut"), "user property")
	}
	check(len(results) == 0, "not received: %v", results)
}

func sendAsync(s *scenario) {
	p := s.producer()
	// The first message creates the topic.
	s.send(p, "async 0000")
	count := 100
	ids := map[string]bool{}
	var mutex sync.Mutex
	var answered sync.WaitGroup
	for _, body := range bodies("async", count)[1:] {
		answered.Add(1)
		mustNot(p.SendAsync(background, func(_ context.Context, result *primitive.SendResult, err error) {
			defer answered.Done()
			mutex.Lock()
			defer mutex.Unlock()
			if err == nil && result.Status == primitive.SendOK {
				ids[result.MsgID] = true
			}
		}, s.message(body)))
	}
	answered.Wait()
	checkEqual(count-1, len(ids), "distinct ids")
	var in inbox
	s.consume(s.topic(), s.group(""), "*", in.receive)
	in.awaitExactly(bodies("async", count), 60)
}

func sendOneway(s *scenario) {
	s.createTopic(s.topic(), queues)
	p := s.producer()
	for _, body := range bodies("oneway", 20) {
		mustNot(p.SendOneWay(background, s.message(body)))
	}
	var in inbox
	s.consume(s.topic(), s.group(""), "*", in.receive)
	in.awaitExactly(bodies("oneway", 20), 60)
}

func sendBatch(s *scenario) {
	p := s.producer()
	var messages []*primitive.Message
	for _, body := range bodies("batch", 10) {
		messages = append(messages, s.message(body))
	}
	result := must(p.SendSync(background, messages...))
	checkEqual(primitive.SendOK, result.Status, "send status")
	var in inbox
	s.consume(s.topic(), s.group(""), "*", in.receive)
	in.awaitExactly(bodies("batch", 10), 60)
	for _, message := range in.all() {
		checkEqual(result.MessageQueue.QueueId, message.Queue.QueueId, "queue")
		checkEqual(fmt.Sprintf("batch %04d", message.QueueOffset), string(message.Body), "order in the queue")
	}
}

func sendLarge(s *scenario) {
	p := s.producer()
	compressible := bytes.Repeat([]byte("compressible "), 100_000)
	random := make([]byte, 2*1024*1024)
	rand.New(rand.NewSource(1)).Read(random)
	must(p.SendSync(background, primitive.NewMessage(s.topic(), compressible)))
	must(p.SendSync(background, primitive.NewMessage(s.topic(), random)))
	var in inbox
	s.consume(s.topic(), s.group(""), "*", in.receive)
	in.await(2, 60)
	for _, message := range in.all() {
		expected := random
		if len(message.Body) == len(compressible) {
			expected = compressible
			check(int(message.StoreSize) < len(compressible)/10, "stored without compression")
		}
		check(bytes.Equal(expected, message.Body), "body of %d bytes differs", len(message.Body))
	}
}

func sendSelector(s *scenario) {
	s.createTopic(s.topic(), queues)
	p := s.producer(toQueue())
	for _, result := range s.sendTo(p, 2, bodies("selector", 12)...) {
		checkEqual(2, result.MessageQueue.QueueId, "queue of the result")
	}
	var in inbox
	s.consume(s.topic(), s.group(""), "*", in.receive)
	in.awaitExactly(bodies("selector", 12), 60)
	for _, message := range in.all() {
		checkEqual(2, message.Queue.QueueId, "queue")
		checkEqual(fmt.Sprintf("selector %04d", message.QueueOffset), string(message.Body), "order in the queue")
	}
}

func delayLevel(s *scenario) {
	s.createTopic(s.topic(), queues)
	p := s.producer(producer.WithRetry(2))
	var in inbox
	s.consume(s.topic(), s.group(""), "*", in.receive)
	delays := map[string]time.Duration{"level 1": time.Second, "level 2": 5 * time.Second}
	must(p.SendSync(background, s.message("level 1").WithDelayTimeLevel(1)))
	must(p.SendSync(background, s.message("level 2").WithDelayTimeLevel(2)))
	in.awaitExactly([]string{"level 1", "level 2"}, 60)
	for _, message := range in.all() {
		delay := delays[string(message.Body)].Milliseconds()
		took := message.StoreTimestamp - message.BornTimestamp
		check(delay <= took && took <= delay+20_000, "delay of %s: %d ms", message.Body, took)
	}
}
