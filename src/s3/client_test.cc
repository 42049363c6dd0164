#include "s3/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <future>
#include <stop_token>

#include "base/crypto.h"
#include "net/testing/scripted_server.h"

namespace millrace {
namespace {

using testing::HasSubstr;

std::string Pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i * 11 % 26);
  return text;
}

std::string Head(int status, size_t length, std::string_view more = "") {
  return "HTTP/1.1 " + std::to_string(status) + " Scripted\r\nContent-Length: " + std::to_string(length) + "\r\n" +
         std::string(more) + "\r\n";
}

/// The whole answer to a ranged GET of `object`.
std::string Answer(const std::string& object, const std::string& request) {
  uint64_t first = 0;
  uint64_t last = 0;
  EXPECT_EQ(std::sscanf(request.substr(request.find("Range: ")).c_str(), "Range: bytes=%lu-%lu", &first, &last), 2)
      << request;
  const std::string body = object.substr(first, last - first + 1);
  return Head(206, body.size(),
              "ETag: \"e\"\r\nContent-Range: bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" +
                  std::to_string(object.size()) + "\r\n") +
         body;
}

class S3ClientTest : public testing::Test {
 protected:
  S3Config Config(const ScriptedServer& server, std::string_view scheme = "http") {
    S3Config config;
    config.endpoint_url = std::string(scheme) + "://127.0.0.1:" + std::to_string(server.port());
    config.credentials = {"key", "secret", ""};
    return config;
  }

  absl::StatusOr<GetResult> Get(S3Client& client, std::string& buffer, GetOptions options) {
    std::promise<absl::StatusOr<GetResult>> done;
    client.Get("bucket", "key", {reinterpret_cast<std::byte*>(buffer.data()), buffer.size()}, std::move(options),
               [&](absl::StatusOr<GetResult> result) { done.set_value(std::move(result)); });
    return done.get_future().get();
  }

  Runtime runtime_{{.io_threads = 2, .cpu_threads = 1, .memory_bytes = 1 << 20}};
};

TEST_F(S3ClientTest, ReadsThroughCutsAndFlips) {
  const std::string object = Pattern(2'000'000);
  // Connections 0 to 3 break in the body in different ways; the next one flips a bit; then all is well.
  ScriptedServer server([&](ScriptedConnection& connection) {
    for (;;) {
      const std::string request = connection.ReadRequest();
      if (request.empty()) return;
      std::string answer = Answer(object, request);
      if (connection.number() < 4) {
        connection.Send(
            std::string_view(answer).substr(0, answer.size() / 4 * static_cast<size_t>(connection.number())));
        if (connection.number() % 2 == 1) connection.Reset();
        return;
      }
      if (connection.number() == 4 && request.find("If-Match") != std::string::npos) {
        answer.back() ^= 1;
        connection.Send(answer);
        return;
      }
      connection.Send(answer);
    }
  });
  S3Client client(runtime_, Config(server));
  std::string buffer(object.size(), '\0');
  GetOptions options;
  options.range = {0, object.size()};
  const ByteRange tail = {object.size() - 1000, 1000};
  options.checksums = {{tail, Crc32c(AsBytes(std::string_view(object).substr(tail.offset)))}};
  RequestProgress progress{RequestPhase::kDone};
  options.progress = &progress;
  const auto result = Get(client, buffer, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->object_size, object.size());
  EXPECT_TRUE(buffer == object);
  EXPECT_EQ(progress.load(), RequestPhase::kDone);
  EXPECT_EQ(client.counters().get, client.counters().retries + 1);
  EXPECT_GE(client.counters().retries, 5u);
}

TEST_F(S3ClientTest, ManyRequestsShareFewConnections) {
  const std::string object = Pattern(100'000);
  ScriptedServer server([&](ScriptedConnection& connection) {
    for (;;) {
      const std::string request = connection.ReadRequest();
      if (request.empty()) return;
      connection.Send(Answer(object, request));
    }
  });
  S3Config config = Config(server);
  config.max_connections = 4;
  S3Client client(runtime_, config);
  constexpr size_t kRequests = 200;
  std::vector<std::string> buffers(kRequests, std::string(100, '\0'));
  std::vector<std::promise<absl::Status>> done(kRequests);
  for (size_t i = 0; i < kRequests; ++i) {
    client.Get("bucket", "key", {reinterpret_cast<std::byte*>(buffers[i].data()), 100}, {.range = {i * 100, 100}},
               [&done, i](absl::StatusOr<GetResult> result) { done[i].set_value(result.status()); });
  }
  for (size_t i = 0; i < kRequests; ++i) {
    EXPECT_TRUE(done[i].get_future().get().ok());
    EXPECT_EQ(buffers[i], object.substr(i * 100, 100));
  }
  // One more on each loop for second requests, each of which ends a connection.
  EXPECT_LE(static_cast<uint64_t>(server.connections()), 4 + 2 + client.counters().hedges);
}

// A callback that asks for many things at once: they are not all left to the loop that it happens to run on.
TEST_F(S3ClientTest, RequestsOfOneCallbackAreSpreadOverTheLoops) {
  constexpr int kReads = 16;
  const std::string object = Pattern(1000);
  std::atomic<int> arrived = 0;
  ScriptedServer server([&](ScriptedConnection& connection) {
    for (;;) {
      const std::string request = connection.ReadRequest();
      if (request.empty()) return;
      const int until = arrived++ / kReads * kReads + kReads;  // all of a round are under way before one is answered
      while (arrived < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      connection.Send(Answer(object, request));
    }
  });
  S3Client client(runtime_, Config(server));
  std::vector<std::string> buffers(kReads, std::string(1000, '\0'));
  std::atomic<int> left = 0;
  int rounds = 3;
  std::promise<void> over;
  std::function<void()> begin = [&] {
    left = kReads;
    for (std::string& buffer : buffers) {
      client.Get("bucket", "key", {reinterpret_cast<std::byte*>(buffer.data()), buffer.size()}, {.range = {0, 1000}},
                 [&](absl::StatusOr<GetResult> result) {
                   EXPECT_TRUE(result.ok()) << result.status();
                   if (--left > 0) return;
                   --rounds > 0 ? begin() : over.set_value();
                 });
    }
  };
  begin();
  over.get_future().wait();
  // All on the callback's own loop would be half as many again.
  EXPECT_LE(server.connections(), kReads + 4 + static_cast<int>(client.counters().hedges));
}

TEST_F(S3ClientTest, AllOtherVerbs) {
  ScriptedServer server([&](ScriptedConnection& connection) {
    for (;;) {
      const std::string request = connection.ReadRequest();
      if (request.empty()) return;
      std::string body;
      if (request.starts_with("GET /bucket?list-type=2"))
        body = "<ListBucketResult><Contents><Key>k</Key><Size>3</Size></Contents></ListBucketResult>";
      if (request.starts_with("POST /bucket/key?uploads="))
        body = "<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>";
      if (request.starts_with("POST /bucket/key?uploadId=id")) {
        EXPECT_THAT(request, HasSubstr("<PartNumber>1</PartNumber><ETag>&quot;part&quot;</ETag>"));
        body = "<CompleteMultipartUploadResult><ETag>\"whole\"</ETag></CompleteMultipartUploadResult>";
      }
      const bool is_head = request.starts_with("HEAD");
      connection.Send(Head(200, is_head ? 7 : body.size(), "ETag: \"part\"\r\n") + body);
    }
  });
  S3Client client(runtime_, Config(server));
  std::promise<absl::StatusOr<ObjectInfo>> head;
  client.Head("bucket", "key", [&](absl::StatusOr<ObjectInfo> result) { head.set_value(std::move(result)); });
  EXPECT_EQ(head.get_future().get()->size, 7u);
  std::promise<absl::StatusOr<ObjectInfo>> put;
  client.Put("bucket", "key", AsBytes("body"), {},
             [&](absl::StatusOr<ObjectInfo> result) { put.set_value(std::move(result)); });
  EXPECT_EQ(put.get_future().get()->etag, "part");
  std::promise<absl::Status> removed;
  client.Delete("bucket", "key", [&](absl::Status result) { removed.set_value(std::move(result)); });
  EXPECT_TRUE(removed.get_future().get().ok());
  std::promise<absl::StatusOr<ListPage>> list;
  client.List("bucket", {}, [&](absl::StatusOr<ListPage> result) { list.set_value(std::move(result)); });
  EXPECT_EQ(list.get_future().get()->objects.at(0).key, "k");
  std::promise<absl::StatusOr<std::string>> created;
  client.CreateMultipart("bucket", "key", {},
                         [&](absl::StatusOr<std::string> result) { created.set_value(std::move(result)); });
  EXPECT_EQ(*created.get_future().get(), "id");
  std::promise<absl::StatusOr<ObjectInfo>> part;
  client.UploadPart("bucket", "key", "id", 1, AsBytes("part"),
                    [&](absl::StatusOr<ObjectInfo> result) { part.set_value(std::move(result)); });
  EXPECT_EQ(part.get_future().get()->etag, "part");
  std::promise<absl::StatusOr<ObjectInfo>> completed;
  client.CompleteMultipart("bucket", "key", "id", {"part"},
                           [&](absl::StatusOr<ObjectInfo> result) { completed.set_value(std::move(result)); });
  EXPECT_EQ(completed.get_future().get()->etag, "whole");
  std::promise<absl::Status> aborted;
  client.AbortMultipart("bucket", "key", "id", [&](absl::Status result) { aborted.set_value(std::move(result)); });
  EXPECT_TRUE(aborted.get_future().get().ok());
  EXPECT_EQ(client.counters().head, 1u);
  EXPECT_EQ(client.counters().put, 4u);
  EXPECT_EQ(client.counters().del, 2u);
  EXPECT_EQ(client.counters().list, 2u) << "the abort has looked at the parts";
}

// ---- Cancelling

TEST_F(S3ClientTest, AStopBeforeTheRequest) {
  ScriptedServer server([](ScriptedConnection& connection) { connection.WaitForClose(); });
  S3Client client(runtime_, Config(server));
  std::stop_source stop;
  stop.request_stop();
  std::string buffer(10, '\0');
  EXPECT_EQ(Get(client, buffer, {.range = {0, 10}, .stop = stop.get_token()}).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(S3ClientTest, AStopWhileWaitingForTheAnswerOrTheBackOff) {
  for (const bool backing_off : {false, true}) {
    std::stop_source stop;
    ScriptedServer server([&](ScriptedConnection& connection) {
      connection.ReadRequest();
      if (backing_off) connection.Send(Head(503, 0, "Retry-After: 60\r\n"));
      // The request is under way, or its back-off of a minute about to begin.
      stop.request_stop();
      connection.WaitForClose();
    });
    S3Client client(runtime_, Config(server));
    std::string buffer(10, '\0');
    const auto result = Get(client, buffer, {.range = {0, 10}, .stop = stop.get_token()});
    EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("s3://bucket/key: "));
  }
}

TEST_F(S3ClientTest, AStopInTheBackOff) {
  // The server sees the end of its connection when the client has dropped it; the stop comes from the progress of the
  // request.
  ScriptedServer server([](ScriptedConnection& connection) {
    connection.ReadRequest();
    connection.Send(Head(503, 0, "Retry-After: 60\r\n"));
    connection.WaitForClose();
  });
  S3Client client(runtime_, Config(server));
  std::stop_source stop;
  RequestProgress progress{RequestPhase::kQueued};
  std::string buffer(10, '\0');
  std::promise<absl::Status> done;
  client.Get("bucket", "key", {reinterpret_cast<std::byte*>(buffer.data()), 10},
             {.range = {0, 10}, .progress = &progress, .stop = stop.get_token()},
             [&](absl::StatusOr<GetResult> result) { done.set_value(result.status()); });
  while (progress.load() != RequestPhase::kThrottled) std::this_thread::yield();
  stop.request_stop();
  EXPECT_EQ(done.get_future().get().code(), absl::StatusCode::kCancelled);
}

TEST_F(S3ClientTest, AStopAfterTheEndDoesNothing) {
  const std::string object = Pattern(10);
  ScriptedServer server([&](ScriptedConnection& connection) {
    connection.Send(Answer(object, connection.ReadRequest()));
    connection.WaitForClose();
  });
  std::stop_source stop;
  {
    S3Client client(runtime_, Config(server));
    std::string buffer(10, '\0');
    EXPECT_TRUE(Get(client, buffer, {.range = {0, 10}, .stop = stop.get_token()}).ok());
    stop.request_stop();
  }
  stop.request_stop();
}

TEST_F(S3ClientTest, TheDestructorCancelsAndWaits) {
  ScriptedServer server([](ScriptedConnection& connection) {
    if (connection.ReadRequest().empty()) return;
    if (connection.number() % 2 == 0) connection.Send(Head(503, 0, "Retry-After: 60\r\n"));
    connection.WaitForClose();
  });
  constexpr int kRequests = 50;
  std::vector<std::string> buffers(kRequests, std::string(10, '\0'));
  std::atomic<int> cancelled{0};
  {
    S3Config config = Config(server);
    config.max_connections = 8;
    S3Client client(runtime_, config);
    for (int i = 0; i < kRequests; ++i) {
      client.Get("bucket", "key", {reinterpret_cast<std::byte*>(buffers[i].data()), 10}, {.range = {0, 10}},
                 [&](absl::StatusOr<GetResult> result) { cancelled += absl::IsCancelled(result.status()) ? 1 : 0; });
    }
  }
  EXPECT_EQ(cancelled, kRequests);
}

TEST_F(S3ClientTest, CallbacksMayStartRequestsEvenWhenTheClientCloses) {
  ScriptedServer server([](ScriptedConnection& connection) { connection.WaitForClose(); });
  std::promise<absl::Status> second;
  {
    S3Client client(runtime_, Config(server));
    client.Head("bucket", "first", [&](absl::StatusOr<ObjectInfo>) {
      client.Head("bucket", "second", [&](absl::StatusOr<ObjectInfo> result) { second.set_value(result.status()); });
    });
  }
  EXPECT_EQ(second.get_future().get().code(), absl::StatusCode::kCancelled);
}

// ---- Requests that take too long

/// Answers at once to `known` requests, from which a client learns what is usual; then each new request is given to
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
// loop is held up until both are ready.
TEST_F(S3ClientTest, ASecondRequestThatHasLostIsNotWatched) {
  using std::chrono::milliseconds;
  const auto hold = [](milliseconds time) { std::this_thread::sleep_for(time); };
  Runtime runtime({.io_threads = 1, .cpu_threads = 1, .memory_bytes = 1 << 20});
  EventLoop& loop = runtime.loops().at(0);
  const std::string object = Pattern(20'000);
  OddServer odd(object, 200, [&](ScriptedConnection& connection, int number) {
    if (number > 0) return false;
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
  ASSERT_TRUE(Get(client, buffer, {.range = {0, object.size()}}).ok());
  EXPECT_EQ(buffer, object);
  EXPECT_EQ(client.counters().hedges, hedges_before + 1);
  EXPECT_EQ(client.counters().retries, 0u);
}

TEST_F(S3ClientTest, AnErrorOfTheSecondRequestDoesNotCount) {
  const std::string object = Pattern(1000);
  OddServer odd(object, 200, [&](ScriptedConnection& connection, int number) {
    if (number > 1) return false;
    if (number == 1) {
      connection.Send(Head(500, 0));
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    connection.Send(Answer(object, "Range: bytes=0-999"));
    return true;
  });
  S3Client client(runtime_, Config(odd.server()));
  std::string buffer(object.size(), '\0');
  for (int i = 0; i < 201; ++i) ASSERT_TRUE(Get(client, buffer, {.range = {0, object.size()}}).ok());
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
  using Clock = std::chrono::steady_clock;
  const std::string object = Pattern(200'000);
  const std::string answer = Answer(object, "Range: bytes=0-199999");
  // In the middle, and where so little is left that it would take but four seconds.
  for (const size_t from : {size_t{50'000}, answer.size() - 3900}) {
    std::promise<Clock::duration> cut;
    OddServer odd(object, 0, [&](ScriptedConnection& connection, int number) {
      if (number > 0) return false;
      connection.Send(std::string_view(answer).substr(0, from));
      const Clock::time_point begin = Clock::now();
      for (size_t at = from; at < answer.size(); at += 100) {  // 1,000 bytes a second
        connection.Send(std::string_view(answer).substr(at, 100));
        if (connection.ClosesWithin(std::chrono::milliseconds(100))) break;
      }
      cut.set_value(Clock::now() - begin);
      return true;
    });
    S3Client client(runtime_, Config(odd.server()));
    std::string buffer(object.size(), '\0');
    const auto result = Get(client, buffer, {.range = {0, object.size()}});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(buffer, object);
    // After two looks, the first of which saw the beginning, at 1.8 s.
    EXPECT_LT(cut.get_future().get(), std::chrono::milliseconds(2600)) << from;
    EXPECT_EQ(client.counters().retries, 1u) << from;
    EXPECT_EQ(client.counters().bytes_read, object.size()) << from;
  }
}

// ---- TLS

TEST_F(S3ClientTest, TlsWithAPrivateAuthority) {
  const auto tls = MakeThrowawayTls("127.0.0.1");
  ASSERT_TRUE(tls.ok());
  const std::string object = Pattern(100'000);
  ScriptedServer server(
      [&](ScriptedConnection& connection) {
        const std::string request = connection.ReadRequest();
        if (!request.empty()) connection.Send(Answer(object, request));
        connection.WaitForClose();
      },
      &tls->server);
  std::string buffer(object.size(), '\0');
  {
    S3Client distrustful(runtime_, Config(server, "https"));
    const auto result = Get(distrustful, buffer, {.range = {0, object.size()}});
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("AWS_CA_BUNDLE"));
  }
  const std::string ca_file = testing::TempDir() + "/s3-ca-" + std::to_string(::getpid()) + ".pem";
  std::ofstream(ca_file) << tls->ca_pem;
  S3Config config = Config(server, "https");
  config.ca_file = ca_file;
  S3Client client(runtime_, config);
  const auto result = Get(client, buffer, {.range = {0, object.size()}});
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(buffer, object);
  std::remove(ca_file.c_str());
}

}  // namespace
}  // namespace millrace
