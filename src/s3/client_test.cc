#include "s3/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <stop_token>

#include "base/crypto.h"
#include "net/testing/scripted_server.h"
#include "s3/testing/client_fixture.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

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
      const int until = arrived++ / kReads * kReads + kReads;  // all of a round are in flight before one is answered
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
      // The request is in flight, or its back-off of a minute about to begin.
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
  const std::string ca_file = ::testing::TempDir() + "/s3-ca-" + std::to_string(::getpid()) + ".pem";
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
