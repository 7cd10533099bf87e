package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const level30Seconds = 4

// retry: without further ado a failed message comes again after 10 s, and the others are not held up.
func retry(s *scenario) {
	failing := s.sendOneThatFails()
	in := s.consumeFailingOnce(0)
	in.awaitExactly([]string{"good 0", "good 1", "good 2", "bad", "bad"}, 90)
	checkRetried(s, failing, in, 9900*time.Millisecond)

	var stored inbox
	s.consume("%RETRY%"+s.group(""), s.group("reader"), "*", stored.receive)
	stored.await(1, 60)
	message := stored.all()[0]
	checkEqual("bad", string(message.Body), "body in the retry topic")
	checkEqual(int32(1), message.ReconsumeTimes, "reconsume times in the retry topic")
	checkEqual(s.topic(), message.GetProperty(primitive.PropertyRetryTopic), "RETRY_TOPIC")
	checkEqual(failing.MsgID, message.MsgId, "unique id")
}

// retryDelayLevel: the listener may ask for another delay; level 1 is 1 s.
func retryDelayLevel(s *scenario) {
	failing := s.sendOneThatFails()
	in := s.consumeFailingOnce(1)
	in.awaitExactly([]string{"good 0", "good 1", "good 2", "bad", "bad"}, 90)
	checkRetried(s, failing, in, 900*time.Millisecond)
}

// deadLetter: after its last try a message is dead at once, whatever delay the listener asks for.
func deadLetter(s *scenario) {
	failing := s.sendOneThatFails()
	var in inbox
	s.consume(s.topic(), s.group(""), "*", func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		in.add(messages)
		if string(messages[0].Body) != "bad" {
			return consumer.ConsumeSuccess, nil
		}
		if messages[0].ReconsumeTimes < 2 {
			retryWithLevel(ctx, 1)
		} else {
			retryWithLevel(ctx, level30Seconds)
		}
		return consumer.ConsumeRetryLater, nil
	}, consumer.WithMaxReconsumeTimes(2))

	in.await(6, 90)
	var dead inbox
	dlq := "%DLQ%" + s.group("")
	await(60, "route of "+dlq, func() bool { return s.routeExists(dlq) })
	s.consume(dlq, s.group("dlq"), "*", dead.receive)
	dead.awaitExactly([]string{"bad"}, 60)
	checkEqual(s.topic(), dead.all()[0].GetProperty(primitive.PropertyRetryTopic), "RETRY_TOPIC")
	checkEqual(failing.MsgID, dead.all()[0].MsgId, "unique id")
	in.awaitExactly([]string{"good 0", "good 1", "good 2", "bad", "bad", "bad"}, 10)
	checkEqual("[0 1 2]", fmt.Sprint(reconsumeTimes(&in)), "reconsume times")
	took := dead.all()[0].StoreTimestamp - in.all()[5].StoreTimestamp
	check(0 <= took && took <= 20_000, "%d ms from the last try to the dead letter", took)
}

// sendOneThatFails puts all into one queue, the failing one second: the queue must go on without it.
func (s *scenario) sendOneThatFails() *primitive.SendResult {
	s.createTopic(s.topic(), queues)
	p := s.producer(toQueue())
	return s.sendTo(p, 0, "good 0", "bad", "good 1", "good 2")[1]
}

// consumeFailingOnce starts a consumer that fails the first time for `bad`.
func (s *scenario) consumeFailingOnce(delayLevel int) *inbox {
	in := &inbox{}
	s.consume(s.topic(), s.group(""), "*", func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		in.add(messages)
		if string(messages[0].Body) == "bad" && messages[0].ReconsumeTimes == 0 {
			retryWithLevel(ctx, delayLevel)
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	})
	return in
}

func retryWithLevel(ctx context.Context, level int) {
	if concurrently, ok := primitive.GetConcurrentlyCtx(ctx); ok {
		concurrently.DelayLevelWhenNextConsume = level
	}
}

func checkRetried(s *scenario, failing *primitive.SendResult, in *inbox, delay time.Duration) {
	checkEqual("[0 1]", fmt.Sprint(reconsumeTimes(in)), "reconsume times")
	var tries []*primitive.MessageExt
	for _, message := range in.all() {
		if string(message.Body) == "bad" {
			tries = append(tries, message)
		}
	}
	checkEqual(s.topic(), tries[1].Topic, "topic shown to the listener")
	checkEqual(failing.MsgID, tries[1].MsgId, "unique id")
	took := time.Duration(tries[1].StoreTimestamp-tries[0].StoreTimestamp) * time.Millisecond
	check(delay <= took && took <= delay+40*time.Second, "delay of the retry: %v", took)
}

func reconsumeTimes(in *inbox) []int32 {
	var times []int32
	for _, message := range in.all() {
		if string(message.Body) == "bad" {
			times = append(times, message.ReconsumeTimes)
		}
	}
	return times
}
