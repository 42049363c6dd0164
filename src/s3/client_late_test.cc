// Requests that take too long: late first bytes, second requests beside them, trickles.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "s3/client.h"
#include "s3/testing/client_fixture.h"

namespace millrace {
namespace {

/// Answers at once to `known` requests, from which a client learns what is usual. Then each new request is given to
/// `odd` with its number from 0, which says whether it has dealt with it.
class OddServer {
 public:
  OddServer(const std::string& object, int known, std::function<bool(ScriptedConnection&, int)> odd)
      : server_([this, &object, known, odd = std::move(odd)](ScriptedConnection& connection) {
          for (;;) {
            const std::string request = connection.ReadRequest();
            if (request.empty()) return;
            const int number = requests_++ - known;
            if (number >= 0 && odd(connection, number)) return connection.WaitForClose();
            connection.Send(Answer(object, request));
          }
        }) {}
  const ScriptedServer& server() const { return server_; }
  int requests() const { return requests_; }

 private:
  std::atomic<int> requests_{0};
  ScriptedServer server_;
};

TEST_F(S3ClientTest, ASecondRequestOvertakesALateFirstByte) {
  const std::string object = Pattern(1000);
  OddServer odd(object, 200, [](ScriptedConnection&, int number) { return number == 0; });  // is never answered
  S3Client client(runtime_, Config(odd.server()));
  std::string buffer(object.size(), '\0');
  for (int i = 0; i < 201; ++i) {
    buffer.assign(object.size(), '\0');
    ASSERT_TRUE(Get(client, buffer, {.range = {0, object.size()}}).ok());
    ASSERT_EQ(buffer, object);
  }
  EXPECT_GE(client.counters().hedges, 1u);
  EXPECT_EQ(client.counters().retries, 0u);
  EXPECT_GE(client.counters().bytes_read, 201 * object.size());
}

TEST_F(S3ClientTest, AStallAmongTheFirstRequestsIsOvertakenOnceOthersShowWhatIsLate) {
  const std::string object = Pattern(1000);
  OddServer odd(object, 0, [](ScriptedConnection&, int number) { return number == 0; });  // is never answered
  S3Client client(runtime_, Config(odd.server()));
  std::string stalled(object.size(), '\0');
  std::promise<absl::Status> done;
  client.Get("bucket", "key", {reinterpret_cast<std::byte*>(stalled.data()), stalled.size()},
             {.range = {0, object.size()}},
             [&](absl::StatusOr<GetResult> result) { done.set_value(std::move(result).status()); });
  while (odd.requests() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::string buffer(object.size(), '\0');
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(Get(client, buffer, {.range = {0, object.size()}}).ok());
  const absl::Status status = done.get_future().get();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(stalled, object);
  EXPECT_GE(client.counters().hedges, 1u);
  EXPECT_EQ(client.counters().retries, 0u);
}

// The second request's connection is made in the very turn of the loop in which the first one's answer is read: the
// loop is held up until both are ready. On a busy machine the client may not take 60 ms for late: then it is tried
// again.
TEST_F(S3ClientTest, ASecondRequestThatHasLostIsNotWatched) {
  using std::chrono::milliseconds;
  const auto hold = [](milliseconds time) { std::this_thread::sleep_for(time); };
  Runtime runtime({.io_threads = 1, .cpu_threads = 1, .memory_bytes = 1 << 20});
  EventLoop& loop = runtime.loops().at(0);
  const std::string object = Pattern(20'000);
  std::atomic<bool> late{false};  // the next request
  OddServer odd(object, 0, [&](ScriptedConnection& connection, int) {
    if (!late.exchange(false)) return false;
    loop.Post([&] {
      hold(milliseconds(60));  // the second request is due
      loop.Post([&] { hold(milliseconds(60)); });
    });
    hold(milliseconds(90));
    const std::string answer = Answer(object, "Range: bytes=0-19999");
    connection.Send(std::string_view(answer).substr(0, 10'000));
    hold(milliseconds(150));  // somebody who watched the second one would look by now
    connection.Send(std::string_view(answer).substr(10'000));
    return true;
  });
  S3Client client(runtime, Config(odd.server()));
  std::string buffer(object.size(), '\0');
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(Get(client, buffer, {.range = {0, object.size()}}).ok());
  const uint64_t hedges_before = client.counters().hedges;
  for (int i = 0; i < 100 && client.counters().hedges == hedges_before; ++i) {
    late = true;
    buffer.assign(object.size(), '\0');
    ASSERT_TRUE(Get(client, buffer, {.range = {0, object.size()}}).ok());
    EXPECT_EQ(buffer, object);
  }
  EXPECT_EQ(client.counters().hedges, hedges_before + 1);
  EXPECT_EQ(client.counters().retries, 0u);
}

TEST_F(S3ClientTest, AnErrorOfTheSecondRequestDoesNotCount) {
  const std::string object = Pattern(1000);
  std::atomic<int> left{0};   // of the two requests: the late one, and the second one
  std::promise<void> failed;  // the second one
  const std::shared_future<void> failure = failed.get_future().share();
  OddServer odd(object, 0, [&](ScriptedConnection& connection, int) {
    if (left == 0) return false;
    if (left-- == 1) {
      connection.Send(Head(500, 0));
      failed.set_value();
      return true;
    }
    failure.wait_for(std::chrono::seconds(300));
    connection.Send(Answer(object, "Range: bytes=0-999"));
    return true;
  });
  S3Client client(runtime_, Config(odd.server()));
  std::string buffer(object.size(), '\0');
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(Get(client, buffer, {.range = {0, object.size()}}).ok());
  left = 2;
  ASSERT_TRUE(Get(client, buffer, {.range = {0, object.size()}}).ok());
  EXPECT_EQ(buffer, object);
  EXPECT_GE(client.counters().hedges, 1u);
  EXPECT_EQ(client.counters().retries, 0u);
}

TEST_F(S3ClientTest, WithoutExperienceNothingIsAskedTwice) {
  const std::string object = Pattern(1000);
  OddServer odd(object, 20, [&](ScriptedConnection& connection, int) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    connection.Send(Answer(object, "Range: bytes=0-999"));
    return true;
  });
  S3Client client(runtime_, Config(odd.server()));
  std::string buffer(object.size(), '\0');
  for (int i = 0; i < 21; ++i) ASSERT_TRUE(Get(client, buffer, {.range = {0, object.size()}}).ok());
  EXPECT_EQ(odd.requests(), 21);
}

TEST_F(S3ClientTest, ATrickleIsCutAndResumed) {
  const std::string object = Pattern(200'000);
  const std::string answer = Answer(object, "Range: bytes=0-199999");
  // The body trickles in the middle, and where so little is left that it would take but some seconds.
  for (const size_t from : {size_t{50'000}, answer.size() - 3900}) {
    OddServer odd(object, 0, [&](ScriptedConnection& connection, int number) {
      if (number > 0) return false;
      connection.Send(std::string_view(answer).substr(0, from));
      // 1,000 bytes a second, and at the end 100: it comes to its end by itself if nobody cuts it.
      for (size_t at = from, step = 100; at < answer.size(); at += step) {
        if (answer.size() - at <= 1000) step = 10;
        connection.Send(std::string_view(answer).substr(at, step));
        if (connection.ClosesWithin(std::chrono::milliseconds(100))) break;
      }
      return true;
    });
    S3Client client(runtime_, Config(odd.server()));
    std::string buffer(object.size(), '\0');
    const auto result = Get(client, buffer, {.range = {0, object.size()}});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(buffer, object);
    EXPECT_EQ(client.counters().retries, 1u) << from;
    EXPECT_EQ(client.counters().bytes_read, object.size()) << from;
  }
}

}  // namespace
}  // namespace millrace
