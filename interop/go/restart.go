package main

import "time"

// restart: progress and messages survive a restart of the broker, for consumers that stay and for ones that start anew.
func restart(s *scenario) {
	s.useCluster("restart-")
	p := s.producer()
	before, after := bodies("before", 20), bodies("after", 20)
	s.send(p, before...)
	var stays, firstLife, secondLife inbox
	s.consume(s.topic(), s.group("stays"), "*", stays.receive)
	leaving := s.consume(s.topic(), s.group("returns"), "*", firstLife.receive)
	stays.awaitExactly(before, 60)
	firstLife.awaitExactly(before, 60)
	mustNot(leaving.Shutdown())
	// It told its progress and did not wait for an answer: a broker that stops in this moment may not have read that.
	time.Sleep(settle)

	servers("restart", "restart-broker")

	// The producer lives on; it needs a moment to see that the broker is back.
	await(60, "a send succeeds after the restart", func() bool {
		_, err := p.SendSync(background, s.message(after[0]))
		return err == nil
	})
	s.send(p, after[1:]...)
	s.consume(s.topic(), s.group("returns"), "*", secondLife.receive)
	secondLife.awaitExactly(after, 60)
	stays.awaitExactly(append(before, after...), 60)
}
