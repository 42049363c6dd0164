#include "store/calls_in_flight.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "store/blocking.h"
#include "store/testing/forwarding_store.h"

namespace millrace {
namespace {

// Makes calls whose answers a test gives.
class OpenCalls {
 public:
  explicit OpenCalls(CallsInFlight& calls) : calls_(calls) {}

  void Begin(int count) {
    for (int i = 0; i < count; ++i) {
      callbacks_.emplace_back(calls_.Add<absl::Status>([this](absl::Status status) {
        ++handled_;
        return status;
      }));
    }
  }
  void Answer(size_t number, absl::Status status = absl::OkStatus()) { callbacks_[number](std::move(status)); }
  int handled() const { return handled_; }

 private:
  CallsInFlight& calls_;
  std::vector<DoneCallback> callbacks_;
  int handled_ = 0;
};

TEST(CallsInFlight, WithoutCallsNothingIsWaitedFor) {
  CallsInFlight calls;
  EXPECT_TRUE(calls.WaitForRoom(1).ok());
  EXPECT_TRUE(calls.WaitForAll().ok());
  EXPECT_EQ(calls.count(), 0u);
}

TEST(CallsInFlight, AnswersAreHandledByTheThreadThatWaits) {
  MemoryStore store("m");
  const std::string text = "text";
  CallsInFlight calls;
  uint64_t bytes = 0;  // without a lock
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(calls.WaitForRoom(8).ok());
    EXPECT_LT(calls.count(), 8u);
    store.Put(fmt::format("{}", i), AsBytes(text), {.stop = calls.stop()},
              calls.Add<absl::StatusOr<ObjectInfo>>(
                  [&, waiting = std::this_thread::get_id()](const absl::StatusOr<ObjectInfo>& written) {
                    EXPECT_EQ(std::this_thread::get_id(), waiting);
                    bytes += written.ok() ? written->size : 0;
                    return written.status();
                  }));
  }
  EXPECT_TRUE(calls.WaitForAll().ok());
  EXPECT_EQ(bytes, 400u);
  EXPECT_EQ(calls.count(), 0u);
}

TEST(CallsInFlight, RoomIsWaitedForAndWhatHasComeIsHandledWithoutWaiting) {
  CallsInFlight calls;
  OpenCalls open(calls);
  open.Begin(5);
  open.Answer(3);
  open.Answer(1);
  EXPECT_EQ(open.handled(), 0);
  ASSERT_TRUE(calls.WaitForRoom(100).ok());
  EXPECT_EQ(open.handled(), 2);
  EXPECT_EQ(calls.count(), 3u);
  std::jthread answering([&] { open.Answer(0); });
  ASSERT_TRUE(calls.WaitForRoom(3).ok());
  EXPECT_EQ(calls.count(), 2u);
  open.Answer(2);
  open.Answer(4);
  EXPECT_TRUE(calls.WaitForAll().ok());
}

TEST(CallsInFlight, TheFirstErrorWinsAndStopsTheOthers) {
  CallsInFlight calls;
  OpenCalls open(calls);
  open.Begin(4);
  open.Answer(2, absl::DataLossError("first"));
  open.Answer(0, absl::NotFoundError("second"));
  EXPECT_FALSE(calls.stop().stop_requested());
  EXPECT_EQ(calls.WaitForRoom(1), absl::DataLossError("first")) << "without waiting for the others";
  EXPECT_TRUE(calls.stop().stop_requested());
  EXPECT_EQ(calls.WaitForRoom(100), absl::DataLossError("first")) << "it is kept";
  open.Answer(1);
  open.Answer(3, absl::CancelledError("third"));
  EXPECT_EQ(calls.WaitForAll(), absl::DataLossError("first"));
  EXPECT_EQ(open.handled(), 4) << "what the others hold is given back";
}

TEST(CallsInFlight, AnErrorOfTheOwnerEndsTheCalls) {
  CallsInFlight calls;
  OpenCalls open(calls);
  open.Begin(1);
  EXPECT_EQ(calls.Fail(absl::InternalError("own")), absl::InternalError("own"));
  EXPECT_TRUE(calls.stop().stop_requested());
  EXPECT_EQ(calls.Fail(absl::InternalError("later")), absl::InternalError("own"));
  EXPECT_EQ(calls.WaitForRoom(2), absl::InternalError("own"));
  open.Answer(0, absl::CancelledError("stopped"));
  EXPECT_EQ(calls.WaitForAll(), absl::InternalError("own"));
}

TEST(CallsInFlight, AStopOfTheOwnerReachesTheCallsAndIsNoErrorByItself) {
  std::stop_source owner;
  CallsInFlight calls(owner.get_token());
  EXPECT_FALSE(calls.stop().stop_requested());
  owner.request_stop();
  EXPECT_TRUE(calls.stop().stop_requested());
  EXPECT_TRUE(calls.WaitForAll().ok());
  const CallsInFlight late(owner.get_token());
  EXPECT_TRUE(late.stop().stop_requested());
}

TEST(CallsInFlight, TheDestructorStopsTheCallsAndWaitsForThem) {
  const auto memory = std::make_shared<int>(1);
  bool answered = false;
  bool handled = false;
  std::jthread answering;
  {
    CallsInFlight calls;
    DoneCallback done = calls.Add<absl::Status>([&, memory](absl::Status status) {
      handled = true;
      return status;
    });
    answering = std::jthread([&, stop = calls.stop(), done = std::move(done)]() mutable {
      while (!stop.stop_requested()) std::this_thread::yield();
      answered = true;
      std::move(done)(absl::OkStatus());
    });
  }
  EXPECT_TRUE(answered);
  EXPECT_FALSE(handled);
  answering.join();
  EXPECT_EQ(memory.use_count(), 1) << "what the call held is freed";
}

// ---- Calls that follow each other: each object is read, and then written under another name.

// The n-th call fails.
class FailsAt final : public ForwardingStore {
 public:
  explicit FailsAt(int number) : number_(number) {}
  ~FailsAt() override { Close(); }

  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override {
    if (++calls_ == number_) return std::move(done)(Error());
    ForwardingStore::Get(std::move(key), into, std::move(options), std::move(done));
  }
  void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) override {
    if (++calls_ == number_) return std::move(done)(Error());
    ForwardingStore::Put(std::move(key), body, std::move(options), std::move(done));
  }
  absl::Status Error() const { return absl::UnavailableError(fmt::format("call {}", number_)); }
  int calls() const { return calls_; }

 private:
  const int number_;
  int calls_ = 0;  // of the thread that waits
};

absl::Status CopyNumbered(ObjectStore& store, int objects) {
  std::vector<std::string> texts(static_cast<size_t>(objects), std::string(4, '\0'));
  CallsInFlight calls;
  for (int i = 0; i < objects; ++i) {
    RETURN_IF_ERROR(calls.WaitForRoom(3));
    std::string& text = texts[static_cast<size_t>(i)];
    auto write = [&calls, &store, &text, i](const absl::StatusOr<GetResult>& read) {
      if (!read.ok() || calls.stop().stop_requested()) return read.status();
      store.Put(fmt::format("to/{}", i), AsBytes(text), {.stop = calls.stop()},
                calls.Add<absl::StatusOr<ObjectInfo>>([](const auto& written) { return written.status(); }));
      return absl::OkStatus();
    };
    store.Get(fmt::format("from/{}", i), AsWritableBytes(text), {.range = {0, 4}, .stop = calls.stop()},
              calls.Add<absl::StatusOr<GetResult>>(std::move(write)));
  }
  return calls.WaitForAll();
}

TEST(CallsInFlight, HandlersMayAddCallsEachOfWhichMayFail) {
  constexpr int kObjects = 7;
  for (int failing = 0; failing <= 2 * kObjects; ++failing) {  // 0: none
    FailsAt store(failing == 0 ? 0 : failing + kObjects);
    for (int i = 0; i < kObjects; ++i) {
      ASSERT_TRUE(PutBlocking(store, fmt::format("from/{}", i), AsBytes(std::string("text"))).ok());
    }
    const absl::Status copied = CopyNumbered(store, kObjects);
    EXPECT_EQ(copied, failing > 0 ? store.Error() : absl::OkStatus()) << failing;
    if (failing > 0) continue;
    EXPECT_EQ(store.calls(), 3 * kObjects);
    EXPECT_EQ(*ReadAll(store, "to/6", 4), "text");
  }
}

}  // namespace
}  // namespace millrace
