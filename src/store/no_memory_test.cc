#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <new>
#include <set>
#include <string>
#include <thread>

#include "net/runtime.h"
#include "net/testing/http_server_fixture.h"
#include "s3/client.h"
#include "store/s3_store.h"

// During a request, allocation n fails in the thread that makes it, for n = 1, 2, ..., until there are no more. Each
// time the request ends, and the next one is as good as ever.

namespace {

std::atomic<int64_t> allocations_left{0};  // until the one that fails; 0: none does
thread_local bool always_served = false;   // this thread's allocations neither count nor fail

void* Allocate(size_t size, size_t alignment) {
  if (!always_served && allocations_left.load(std::memory_order_relaxed) > 0 && allocations_left.fetch_sub(1) == 1)
    throw std::bad_alloc();
  void* memory =
      alignment == 0 ? std::malloc(size) : std::aligned_alloc(alignment, (size + alignment - 1) & -alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) {
  return Allocate(size, 0);
}
void* operator new(size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<size_t>(alignment));
}
// Its memory is given back by the same delete (std::stable_sort).
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return Allocate(size, 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace millrace {
namespace {

using ::testing::ContainsRegex;
using ::testing::Not;

constexpr int64_t kMostAllocations = 5'000;  // of a request; it makes some hundred
constexpr std::chrono::minutes kHang{2};

class NoMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    always_served = true;
    setenv("MILLRACE_LOG", "off", 1);  // each failure is logged
    auto started = HttpServer::Start(served_.loops(), {}, handler_);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    config_.endpoint_url = "http://127.0.0.1:" + std::to_string(server_->port());
    config_.credentials = {"key", "secret", ""};
    config_.max_connections = 1;  // so that a connection, or a permit, that is lost stops the next request
    config_.max_attempts = 1;
  }
  void TearDown() override { allocations_left = 0; }

  /// Calls `request` with allocation n failing, for each n. It returns how the request ended.
  void Sweep(const std::function<absl::Status(S3Store&)>& request) {
    int failed = 0;
    int64_t n = 1;
    for (bool reached = true; reached; ++n) {
      SCOPED_TRACE(n);
      ASSERT_LE(n, kMostAllocations);
      S3Client client(runtime_, config_);
      S3Store store(runtime_, client, "bucket");
      allocations_left = n;
      const absl::Status status = request(store);
      reached = allocations_left.exchange(0) <= 0;
      failed += status.ok() ? 0 : 1;
      if (!status.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(status) || absl::IsUnavailable(status)) << status;
        // If the end of a request got lost, a deadline would end it.
        EXPECT_THAT(std::string(status.message()), Not(ContainsRegex("within [0-9]+ ms")));
      }
      const absl::Status after = request(store);
      EXPECT_TRUE(after.ok()) << after;
    }
    EXPECT_GT(failed, 20) << "the canary: of so many allocations some end a request";
    EXPECT_GT(n, 50);
  }

  /// Makes a call of the store, whose allocations in this thread count, too. False: it threw, and nothing has begun.
  template <typename Call>
  static bool Ask(Call call) {
    always_served = false;
    bool begun = true;
    try {
      call();
    } catch (const std::bad_alloc&) {
      begun = false;
    }
    always_served = true;
    return begun;
  }

  template <typename Result>
  static Result Await(std::future<Result> result) {
    if (result.wait_for(kHang) == std::future_status::ready) return result.get();
    ADD_FAILURE() << "the request does not end";
    std::abort();
  }

  void Answer(const FunctionHandler::Request& request, HttpResponder to) const {
    HttpReply reply;
    reply.headers.Add("ETag", "\"e\"");
    if (request.head.method == "GET") {
      reply.status = 206;
      reply.headers.Add("Content-Range",
                        "bytes 0-" + std::to_string(object_.size() - 1) + "/" + std::to_string(object_.size()));
      reply.body.emplace_back(SendText{object_});
    }
    if (request.head.method == "POST") {
      reply.body.emplace_back(
          SendText{request.head.target.ends_with("uploads=")
                       ? "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
                       : "<CompleteMultipartUploadResult><ETag>\"e\"</ETag></CompleteMultipartUploadResult>"});
    }
    to.Send(std::move(reply));
  }

  const std::string object_ = std::string(200'000, 'x');
  Runtime runtime_{{.io_threads = 2, .cpu_threads = 1, .memory_bytes = 1 << 20}};
  Runtime served_{{.io_threads = 2, .cpu_threads = 1, .memory_bytes = 1 << 20}};
  FunctionHandler handler_{
      [this](const FunctionHandler::Request& request, HttpResponder to) { Answer(request, std::move(to)); }};
  std::unique_ptr<HttpServer> server_;
  S3Config config_;
};

TEST_F(NoMemoryTest, AGetEnds) {
  std::string buffer(object_.size(), '\0');
  Sweep([&](S3Store& store) {
    std::promise<absl::StatusOr<GetResult>> done;
    std::future<absl::StatusOr<GetResult>> result = done.get_future();
    GetOptions options;
    options.range = {0, buffer.size()};
    buffer.assign(buffer.size(), '\0');
    const bool begun = Ask([&] {
      store.Get("key", AsWritableBytes(buffer), std::move(options),
                [&done](absl::StatusOr<GetResult> got) { done.set_value(std::move(got)); });
    });
    const absl::Status status = begun ? Await(std::move(result)).status() : OutOfMemory();
    EXPECT_TRUE(!status.ok() || buffer == object_);
    return status;
  });
}

TEST_F(NoMemoryTest, APutEnds) {
  Sweep([&](S3Store& store) {
    std::promise<absl::StatusOr<ObjectInfo>> done;
    std::future<absl::StatusOr<ObjectInfo>> result = done.get_future();
    const bool begun = Ask([&] {
      store.Put("key", AsBytes(object_), {},
                [&done](absl::StatusOr<ObjectInfo> put) { done.set_value(std::move(put)); });
    });
    return begun ? Await(std::move(result)).status() : OutOfMemory();
  });
}

TEST_F(NoMemoryTest, AnUploadInPartsEnds) {
  Sweep([&](S3Store& store) {
    absl::StatusOr<std::unique_ptr<PieceWriter>> writer = store.WritePieces("key", {});
    if (!writer.ok()) return writer.status();
    std::promise<absl::Status> part;
    std::future<absl::Status> written = part.get_future();
    bool begun = Ask([&] {
      (*writer)->Write(0, 0, AsBytes(object_), std::nullopt,
                       [&part](absl::Status put) { part.set_value(std::move(put)); });
    });
    if (!begun) return OutOfMemory();
    if (absl::Status status = Await(std::move(written)); !status.ok()) return status;
    std::promise<absl::StatusOr<ObjectInfo>> whole;
    std::future<absl::StatusOr<ObjectInfo>> committed = whole.get_future();
    begun = Ask([&] {
      (*writer)->Commit(object_.size(), [&whole](absl::StatusOr<ObjectInfo> put) { whole.set_value(std::move(put)); });
    });
    return begun ? Await(std::move(committed)).status() : OutOfMemory();
  });
}

TEST_F(NoMemoryTest, ADeleteEnds) {
  Sweep([&](S3Store& store) {
    std::promise<std::vector<absl::Status>> done;
    std::future<std::vector<absl::Status>> result = done.get_future();
    const bool begun = Ask([&] {
      store.Delete({"key"}, [&done](std::vector<absl::Status> deleted) { done.set_value(std::move(deleted)); });
    });
    if (!begun) return OutOfMemory();
    const std::vector<absl::Status> statuses = Await(std::move(result));
    return statuses.size() == 1 ? statuses[0] : absl::InternalError("not one status");
  });
}

// The client is this thread, which has all the memory it wants.
TEST_F(NoMemoryTest, AServedRequestEnds) {
  for (const bool elsewhere : {false, true}) {
    FunctionHandler handler([&](const FunctionHandler::Request& request, HttpResponder to) {
      if (!elsewhere) return Answer(request, std::move(to));
      std::async(std::launch::async, [&, to = std::move(to)]() mutable { Answer(request, std::move(to)); }).get();
    });
    const std::unique_ptr<HttpServer> server = *HttpServer::Start(served_.loops(), {}, handler);
    int failed = 0;
    int64_t n = 1;
    for (bool reached = true; reached; ++n) {
      SCOPED_TRACE(n);
      ASSERT_LE(n, kMostAllocations);
      allocations_left = n;
      const auto ask = [&] {
        RawClient client(server->port());
        client.Send("PUT /k HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody");
        int error = 0;
        const std::string answer = client.ReadAll(&error);
        EXPECT_TRUE(error == 0 || error == ECONNRESET) << error << ": neither an answer nor an end";
        return answer.starts_with("HTTP/1.1 200");
      };
      failed += ask() ? 0 : 1;
      reached = allocations_left.exchange(0) <= 0;
      EXPECT_TRUE(ask());
    }
    EXPECT_GT(failed, 5);
  }
}

TEST_F(NoMemoryTest, ATaskThatThrowsDoesNotEndItsLoop) {
  EventLoop& loop = runtime_.loops().Next();
  loop.Post([] { throw std::bad_alloc(); });
  loop.Post([] { throw std::runtime_error("another"); });
  bool ran = false;
  RunAndWait(loop, [&ran] { ran = true; });
  EXPECT_TRUE(ran);
  EXPECT_THROW(RunAndWait(loop, [] { throw std::bad_alloc(); }), std::bad_alloc);
}

TEST_F(NoMemoryTest, ACallbackThatIsDestroyedUncalledAnswers) {
  std::promise<absl::Status> done;
  std::thread::id answered_by;
  {
    const SureAnswer<absl::Status> answer(runtime_.loops().Next(), [&](absl::Status status) {
      answered_by = std::this_thread::get_id();
      done.set_value(std::move(status));
    });
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Await(done.get_future())));
  EXPECT_NE(answered_by, std::this_thread::get_id());
  int calls = 0;
  SureAnswer<absl::Status> called(runtime_.loops().Next(), [&calls](const absl::Status&) { ++calls; });
  SureAnswer<absl::Status> moved = std::move(called);
  moved(absl::OkStatus());
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace millrace
