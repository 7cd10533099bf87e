package main

import (
	"math/rand"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// pull: a pull consumer's acknowledged progress outlives it.
func pull(s *scenario) {
	p := s.producer()
	all := bodies("pull", 30)
	s.send(p, all[:20]...)
	first := s.pullConsumer(s.group(""))
	checkSame(all[:20], poll(first, 20), "polled")
	mustNot(first.Shutdown())

	s.send(p, all[20:]...)
	second := s.pullConsumer(s.group(""))
	checkSame(all[20:], poll(second, 10), "polled by the next consumer")
}

// pullFrom reads a queue at offsets of one's choice.
func pullFrom(s *scenario) {
	s.createTopic(s.topic(), queues)
	p := s.producer(toQueue())
	all := bodies("pull-from", 20)
	s.sendTo(p, 1, all...)
	c := s.pullConsumer(s.group(""))
	result := must(c.PullFrom(background, s.queue(1), 5, 10))
	checkEqual(primitive.PullFound, result.Status, "pull status")
	checkOrder(all[5:15], bodiesOf(result.GetMessageExts()), "10 messages from offset 5")
	checkEqual(15, result.NextBeginOffset, "next offset")
	checkEqual(0, result.MinOffset, "minimum")
	checkEqual(20, result.MaxOffset, "maximum")
	result = must(c.PullFrom(background, s.queue(1), 1000, 10))
	checkEqual(primitive.PullOffsetIllegal, result.Status, "pull status beyond the end")
	checkEqual(20, result.NextBeginOffset, "offset to go on with")
}

func (s *scenario) pullConsumer(group string) rocketmq.PullConsumer {
	c := must(rocketmq.NewPullConsumer(consumer.WithNsResolver(s.resolver()), consumer.WithGroupName(group),
		consumer.WithInstance(instance()), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)))
	mustNot(c.Subscribe(s.topic(), consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}))
	mustNot(c.Start())
	s.atEnd(func() { c.Shutdown() })
	return c
}

func poll(c rocketmq.PullConsumer, count int) []string {
	var received []string
	await(60, "polled messages", func() bool {
		request, err := c.Poll(background, 500*time.Millisecond)
		if err == nil {
			received = append(received, bodiesOf(request.GetMsgList())...)
			c.ACK(background, request, consumer.ConsumeSuccess)
		}
		return len(received) >= count
	})
	return received
}

func incompressible(size int) []byte {
	body := make([]byte, size)
	rand.Read(body)
	return body
}
