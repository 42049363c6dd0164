#include "service/stream_protocol.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace millrace {
namespace {

using Kind = ServiceRequest::Kind;
using State = StreamProtocol::State;

// Marked with the step, to be seen when it is taken.
ReceivedBatch BatchOf(uint64_t step) {
  ReceivedBatch batch;
  batch.frame.facts.epoch = step;
  return batch;
}

std::vector<uint64_t> StepsAsked(StreamProtocol& protocol) {
  std::vector<uint64_t> steps;
  for (const ServiceRequest& request : protocol.TakeRequests()) {
    if (request.kind == Kind::kNext) steps.push_back(request.step);
  }
  return steps;
}

// Returns a protocol that streams from worker 0.
StreamProtocol Streaming(uint64_t window, uint64_t end) {
  StreamProtocol protocol(window, window, end);
  protocol.Assign(0);
  protocol.TakeRequests();
  EXPECT_TRUE(protocol.OnOpened(1, "s1"));
  return protocol;
}

TEST(StreamProtocolTest, AsksForAWindow) {
  StreamProtocol protocol(3, 3, 10);
  EXPECT_EQ(protocol.state(), State::kUnplaced);
  protocol.Assign(4);
  const std::vector<ServiceRequest> open = protocol.TakeRequests();
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].kind, Kind::kOpen);
  EXPECT_EQ(open[0].worker, 4u);
  EXPECT_EQ(open[0].step, 0u);
  EXPECT_TRUE(protocol.TakeRequests().empty());
  EXPECT_TRUE(protocol.OnOpened(open[0].attempt, "s"));
  EXPECT_EQ(StepsAsked(protocol), (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_TRUE(protocol.OnBatch(1, 1, BatchOf(1)));
  EXPECT_FALSE(protocol.TakeNext()) << "step 0 has not come";
  EXPECT_TRUE(protocol.OnBatch(1, 0, BatchOf(0)));
  EXPECT_EQ(protocol.missing(), 2u);
  EXPECT_TRUE(StepsAsked(protocol).empty());
  EXPECT_EQ(protocol.TakeNext()->frame.facts.epoch, 0u);
  EXPECT_EQ(StepsAsked(protocol), std::vector<uint64_t>{3});
}

TEST(StreamProtocolTest, AsksForNothingThatHasNoPlace) {
  StreamProtocol protocol = Streaming(3, 10);
  const auto asks = [&protocol](uint64_t before) {
    std::vector<uint64_t> steps;
    for (const ServiceRequest& request : protocol.TakeRequests(before)) steps.push_back(request.step);
    return steps;
  };
  EXPECT_TRUE(asks(0).empty());
  EXPECT_TRUE(protocol.asks_nothing());
  EXPECT_EQ(asks(2), (std::vector<uint64_t>{0, 1}));
  EXPECT_FALSE(protocol.asks_nothing());
  EXPECT_TRUE(asks(2).empty());
  EXPECT_EQ(asks(100), std::vector<uint64_t>{2});
}

TEST(StreamProtocolTest, AsksAgainForWhatIsNotYetThere) {
  StreamProtocol protocol = Streaming(2, 10);
  StepsAsked(protocol);
  EXPECT_TRUE(protocol.OnNotYet(1, 1));
  EXPECT_FALSE(protocol.OnNotYet(1, 1)) << "it was not asked for";
  EXPECT_EQ(StepsAsked(protocol), std::vector<uint64_t>{1});
}

TEST(StreamProtocolTest, AsksForNothingBehindTheEnd) {
  StreamProtocol protocol = Streaming(5, 2);
  EXPECT_EQ(StepsAsked(protocol), (std::vector<uint64_t>{0, 1}));
  protocol.OnBatch(1, 0, BatchOf(0));
  protocol.OnBatch(1, 1, BatchOf(1));
  EXPECT_FALSE(protocol.ended());
  protocol.TakeNext();
  protocol.TakeNext();
  EXPECT_TRUE(protocol.ended());
  EXPECT_TRUE(StepsAsked(protocol).empty());
}

TEST(StreamProtocolTest, TheWindowGrowsToItsBound) {
  StreamProtocol protocol(1, 3, 10);
  protocol.Assign(0);
  protocol.TakeRequests();
  protocol.OnOpened(1, "s1");
  EXPECT_EQ(StepsAsked(protocol), std::vector<uint64_t>{0});
  protocol.Widen();
  EXPECT_EQ(StepsAsked(protocol), std::vector<uint64_t>{1});
  for (int again = 0; again < 5; ++again) protocol.Widen();
  EXPECT_EQ(protocol.window(), 3u);
  EXPECT_EQ(StepsAsked(protocol), std::vector<uint64_t>{2});
}

TEST(StreamProtocolTest, AFailureKeepsWhatHasComeInOrder) {
  StreamProtocol protocol = Streaming(4, 10);
  StepsAsked(protocol);
  protocol.OnBatch(1, 0, BatchOf(0));
  protocol.OnBatch(1, 2, BatchOf(2));  // will come once more
  EXPECT_TRUE(protocol.OnFailure(1));
  EXPECT_FALSE(protocol.OnFailure(1)) << "of other requests of the same session";
  EXPECT_EQ(protocol.state(), State::kUnplaced);
  protocol.Assign(1);
  const std::vector<ServiceRequest> open = protocol.TakeRequests();
  ASSERT_EQ(open.size(), 2u);
  EXPECT_EQ(open[0].kind, Kind::kClose) << "a worker that is well would keep its memory";
  EXPECT_EQ(open[0].session, "s1");
  EXPECT_EQ(open[1].kind, Kind::kOpen);
  EXPECT_EQ(open[1].step, 1u);
  EXPECT_FALSE(protocol.OnBatch(1, 1, BatchOf(1))) << "late, of the first session";
  EXPECT_TRUE(protocol.OnOpened(2, "s2"));
  const std::vector<ServiceRequest> next = protocol.TakeRequests();
  ASSERT_EQ(next.size(), 3u);
  EXPECT_EQ(next[0].step, 1u);
  EXPECT_EQ(next[0].sequence, 0u);
  EXPECT_EQ(next[0].session, "s2");
}

TEST(StreamProtocolTest, LocalReadingGoesOnWhereBatchesEnd) {
  StreamProtocol protocol = Streaming(4, 10);
  StepsAsked(protocol);
  protocol.OnBatch(1, 0, BatchOf(0));
  protocol.OnFailure(1);
  protocol.Assign(std::nullopt);
  EXPECT_EQ(protocol.state(), State::kLocal);
  EXPECT_EQ(protocol.TakeRequests().size(), 1u) << "the session is closed";
  EXPECT_TRUE(protocol.TakeNext());
  EXPECT_EQ(protocol.next(), 1u);
  protocol.SkipNext();
  protocol.Release();
  EXPECT_TRUE(protocol.TakeRequests().empty()) << "there is no session to close";
  protocol.Assign(2);
  EXPECT_EQ(protocol.TakeRequests().at(0).step, 2u);
}

TEST(StreamProtocolTest, ReleaseClosesTheSession) {
  StreamProtocol protocol = Streaming(2, 10);
  protocol.Release();
  const std::vector<ServiceRequest> close = protocol.TakeRequests();
  ASSERT_EQ(close.size(), 1u);
  EXPECT_EQ(close[0].kind, Kind::kClose);
  EXPECT_EQ(close[0].session, "s1");
}

TEST(StreamProtocolTest, AHedgeThatIsFasterTakesOver) {
  StreamProtocol protocol = Streaming(3, 10);
  StepsAsked(protocol);
  protocol.OnBatch(1, 1, BatchOf(1));
  protocol.Hedge(7);
  EXPECT_TRUE(protocol.hedged());
  const std::vector<ServiceRequest> open = protocol.TakeRequests();
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].kind, Kind::kOpen);
  EXPECT_EQ(open[0].worker, 7u);
  EXPECT_EQ(open[0].step, 0u);
  EXPECT_TRUE(protocol.OnOpened(2, "s2"));
  for (int again = 0; again < 2; ++again) {
    const std::vector<ServiceRequest> next = protocol.TakeRequests();
    ASSERT_EQ(next.size(), 1u) << "one batch of it, no more";
    EXPECT_EQ(next[0].session, "s2");
    EXPECT_EQ(next[0].sequence, 0u);
    if (again == 0) {
      EXPECT_TRUE(protocol.OnNotYet(2, 0));
    }
  }
  EXPECT_TRUE(protocol.OnBatch(2, 0, BatchOf(0)));
  EXPECT_FALSE(protocol.hedged());
  EXPECT_EQ(protocol.worker(), 7u);
  EXPECT_FALSE(protocol.OnBatch(1, 0, BatchOf(0))) << "late";
  EXPECT_EQ(protocol.TakeNext()->frame.facts.epoch, 0u);
  const std::vector<ServiceRequest> after = protocol.TakeRequests();
  ASSERT_EQ(after.size(), 4u);
  EXPECT_EQ(after[0].kind, Kind::kClose);
  EXPECT_EQ(after[0].session, "s1");
  EXPECT_EQ(after[0].worker, 0u);
  EXPECT_EQ(after[1].step, 1u) << "sessions deliver in order: also what has come of the other one";
  EXPECT_EQ(after[1].sequence, 1u);
}

TEST(StreamProtocolTest, AHedgeThatIsSlowerIsClosed) {
  StreamProtocol protocol = Streaming(3, 10);
  StepsAsked(protocol);
  protocol.Hedge(7);
  protocol.TakeRequests();
  protocol.OnOpened(2, "s2");
  EXPECT_EQ(StepsAsked(protocol), std::vector<uint64_t>{0});
  EXPECT_TRUE(protocol.OnBatch(1, 1, BatchOf(1)));
  EXPECT_TRUE(protocol.hedged()) << "step 0 has not come";
  EXPECT_TRUE(protocol.OnBatch(1, 0, BatchOf(0)));
  EXPECT_FALSE(protocol.hedged());
  EXPECT_FALSE(protocol.OnBatch(2, 0, BatchOf(0))) << "late";
  const std::vector<ServiceRequest> after = protocol.TakeRequests();
  ASSERT_EQ(after.size(), 1u);
  EXPECT_EQ(after[0].kind, Kind::kClose);
  EXPECT_EQ(after[0].session, "s2");
  EXPECT_FALSE(protocol.EndHedge(2));
}

TEST(StreamProtocolTest, AWorkerThatDoesNotOpenCanBeHedged) {
  StreamProtocol protocol(3, 3, 10);
  protocol.Assign(0);
  protocol.TakeRequests();
  protocol.Hedge(7);
  ASSERT_EQ(protocol.TakeRequests().size(), 1u);
  EXPECT_TRUE(protocol.OnOpened(2, "s2"));
  EXPECT_EQ(protocol.state(), State::kOpening);
  EXPECT_EQ(StepsAsked(protocol), std::vector<uint64_t>{0});
  EXPECT_TRUE(protocol.OnBatch(2, 0, BatchOf(0)));
  EXPECT_EQ(protocol.state(), State::kStreaming);
  EXPECT_EQ(protocol.worker(), 7u);
  EXPECT_FALSE(protocol.OnOpened(1, "s1")) << "late";
  for (const ServiceRequest& request : protocol.TakeRequests()) EXPECT_EQ(request.kind, Kind::kNext);
}

TEST(StreamProtocolTest, AHedgeThatFailsChangesNothing) {
  StreamProtocol protocol = Streaming(3, 10);
  StepsAsked(protocol);
  protocol.Hedge(7);
  EXPECT_TRUE(protocol.EndHedge(2));
  EXPECT_FALSE(protocol.OnOpened(2, "late"));
  EXPECT_EQ(protocol.state(), State::kStreaming);
}

// Otherwise the work of the second worker by then would be done again, while the program waits.
TEST(StreamProtocolTest, AHedgeGoesOnWhenTheFirstSessionFails) {
  // Failed before the second worker has opened the stream, when it has, and when it was asked for the batch.
  for (const int late : {0, 1, 2}) {
    SCOPED_TRACE(late);
    StreamProtocol protocol = Streaming(3, 10);
    StepsAsked(protocol);
    protocol.OnBatch(1, 1, BatchOf(1));
    protocol.Hedge(7);
    if (late > 0) {
      protocol.TakeRequests();
      EXPECT_TRUE(protocol.OnOpened(2, "s2"));
    }
    if (late > 1) {
      EXPECT_EQ(StepsAsked(protocol), std::vector<uint64_t>{0});
    }
    EXPECT_TRUE(protocol.OnFailure(1));
    EXPECT_FALSE(protocol.OnFailure(1)) << "of other requests of the same session";
    EXPECT_FALSE(protocol.hedged());
    EXPECT_EQ(protocol.state(), late == 0 ? State::kOpening : State::kStreaming);
    EXPECT_EQ(protocol.worker(), 7u);
    EXPECT_EQ(protocol.attempt(), 2u);
    std::vector<Kind> kinds;
    std::vector<uint64_t> steps;
    for (const ServiceRequest& request : protocol.TakeRequests()) {
      EXPECT_EQ(request.session, request.kind == Kind::kClose ? "s1" : late == 0 ? "" : "s2");
      kinds.push_back(request.kind);
      if (request.kind == Kind::kNext) steps.push_back(request.step);
    }
    if (late == 0) {
      EXPECT_EQ(kinds, (std::vector<Kind>{Kind::kOpen, Kind::kClose}));
      EXPECT_TRUE(protocol.OnOpened(2, "s2"));
      steps = StepsAsked(protocol);
    }
    EXPECT_EQ(steps, late == 2 ? (std::vector<uint64_t>{1, 2}) : (std::vector<uint64_t>{0, 1, 2}))
        << "also what has come of the other one";
    EXPECT_TRUE(protocol.OnBatch(2, 0, BatchOf(0)));
    EXPECT_EQ(protocol.TakeNext()->frame.facts.epoch, 0u);
    EXPECT_TRUE(protocol.OnFailure(2));
    EXPECT_EQ(protocol.state(), State::kUnplaced);
  }
}

TEST(StreamProtocolTest, NoSessionIsForgotten) {
  StreamProtocol protocol = Streaming(3, 10);
  StepsAsked(protocol);
  protocol.Hedge(7);
  protocol.TakeRequests();
  protocol.OnOpened(2, "s2");
  protocol.TakeRequests();
  // The second session wins, and fails before the caller has sent what follows from that.
  EXPECT_TRUE(protocol.OnBatch(2, 0, BatchOf(0)));
  EXPECT_TRUE(protocol.OnFailure(2));
  protocol.Release();
  std::vector<std::string> closed;
  for (const ServiceRequest& request : protocol.TakeRequests()) {
    EXPECT_EQ(request.kind, Kind::kClose);
    closed.push_back(request.session);
  }
  EXPECT_EQ(closed, (std::vector<std::string>{"s1", "s2"}));
}

// Answers in any order, some late, some of sessions that have ended, failures at any request: steps come in order,
// once.
TEST(StreamProtocolTest, WhateverFailsStepsComeInOrder) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto chance = [&](int percent) { return static_cast<int>(random() % 100) < percent; };
    constexpr uint64_t kEnd = 40;
    const uint64_t window = 1 + random() % 4;
    StreamProtocol protocol(window, window + random() % 4, kEnd);
    std::vector<ServiceRequest> in_flight;
    uint64_t expected = 0;
    for (int turns = 0; !protocol.ended(); ++turns) {
      ASSERT_LT(turns, 100000) << "stuck, seed " << seed;
      if (protocol.state() == State::kUnplaced) {
        protocol.Assign(chance(20) ? std::nullopt : std::optional<size_t>(random() % 3));
      }
      const bool remote = protocol.state() == State::kOpening || protocol.state() == State::kStreaming;
      if (remote && !protocol.hedged() && protocol.missing() < kEnd && chance(10)) protocol.Hedge(random() % 3);
      if (chance(10)) protocol.Widen();
      for (ServiceRequest& request : protocol.TakeRequests()) in_flight.push_back(std::move(request));
      if (!in_flight.empty() && chance(90)) {
        const auto at = in_flight.begin() + static_cast<std::ptrdiff_t>(random() % in_flight.size());
        const ServiceRequest request = std::move(*at);
        in_flight.erase(at);
        if (request.kind == Kind::kClose) continue;
        if (chance(8)) {
          if (!protocol.EndHedge(request.attempt)) protocol.OnFailure(request.attempt);
        } else if (request.kind == Kind::kOpen) {
          protocol.OnOpened(request.attempt, "s");
        } else if (chance(20)) {
          protocol.OnNotYet(request.attempt, request.step);
        } else {
          protocol.OnBatch(request.attempt, request.step, BatchOf(request.step));
        }
      }
      if (std::optional<ReceivedBatch> batch = protocol.TakeNext()) {
        ASSERT_EQ(batch->frame.facts.epoch, expected++) << seed;
        if (chance(5)) protocol.Release();
      } else if (protocol.state() == State::kLocal) {
        ASSERT_EQ(protocol.next(), expected++) << seed;
        protocol.SkipNext();
        if (chance(20)) protocol.Release();
      }
    }
    EXPECT_EQ(expected, kEnd);
  }
}

}  // namespace
}  // namespace millrace
