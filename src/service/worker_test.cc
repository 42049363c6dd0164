#include "service/worker.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <mutex>

#include "base/crypto.h"
#include "base/hex.h"
#include "net/testing/http_server_fixture.h"
#include "pipeline/loader_plan.h"
#include "service/frame.h"
#include "service/stream_spec.h"
#include "service/token_proof.h"
#include "service/worker_calls.h"
#include "service/worker_session.h"
#include "service/worker_token.h"
#include "store/blocking.h"
#include "store/testing/forwarding_store.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest() : runtime_({.io_threads = 1, .cpu_threads = 1, .memory_bytes = 32 << 20}), stores_(runtime_) {}

  void Start(const std::string& token = "") {
    absl::StatusOr<std::unique_ptr<Worker>> worker =
        Worker::Start(runtime_, stores_, {.port = 0, .token = token, .allow = {"mem://allowed"}});
    ASSERT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
  }
  // Returns the worker's answer to bytes.
  std::string Raw(const std::string& request) {
    RawClient client(worker_->port());
    client.Send(request);
    return client.ReadAll();
  }
  static std::string Request(const std::string& method, const std::string& target, const std::string& headers) {
    return method + " " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + "\r\n";
  }

  // A busy machine can keep a worker from its CPU for as long as a trainer waits.
  static WorkerAnswer AskPatiently(WorkerCalls& calls, const HttpEndpoint& worker, const std::string& method,
                                   const std::string& target) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(3);
    for (;;) {
      WorkerAnswer answer = calls.Ask(worker, method, target);
      if (answer.lost.empty() || std::chrono::steady_clock::now() > end) return answer;
    }
  }

  Runtime runtime_;
  Stores stores_;
  std::unique_ptr<Worker> worker_;
};

TEST_F(WorkerTest, TalksOnlyToTrainersOfItsVersion) {
  Start();
  EXPECT_THAT(Raw(Request("GET", "/millrace/hello", "Millrace-Service: " + std::to_string(kServiceVersion) + "\r\n")),
              HasSubstr(" 200 "));
  EXPECT_THAT(Raw(Request("GET", "/millrace/hello", "")), HasSubstr("only trainers talk to it"));
  const std::string other = Raw(Request("GET", "/millrace/hello", "Millrace-Service: 99\r\n"));
  EXPECT_THAT(other, HasSubstr(" 426 "));
  EXPECT_THAT(other, HasSubstr("speaks version 99 of the data service, and the worker version " +
                               std::to_string(kServiceVersion)));
}

TEST_F(WorkerTest, AsksForItsToken) {
  Start("0123456789abcdef");
  const std::string version = "Millrace-Service: " + std::to_string(kServiceVersion) + "\r\n";
  EXPECT_THAT(Raw(Request("GET", "/millrace/hello", version)), HasSubstr(" 401 "));
  EXPECT_THAT(Raw(Request("GET", "/millrace/hello", version + "Millrace-Proof: 0123456789abcdef\r\n")),
              HasSubstr("is not the worker's"));
  WorkerCalls wrong(runtime_, {.token = "0123456789abcdeF"});
  const HttpEndpoint endpoint{.host = "127.0.0.1", .port = worker_->port()};
  EXPECT_THAT(AskPatiently(wrong, endpoint, "GET", "/millrace/hello").text, HasSubstr("is not the worker's"));
  WorkerCalls right(runtime_, {.token = "0123456789abcdef"});
  EXPECT_EQ(AskPatiently(right, endpoint, "GET", "/millrace/hello").status, 200);
  EXPECT_EQ(AskPatiently(right, endpoint, "POST", "/millrace/close?session=" + std::string(32, 'a')).status, 404);
}

// C14: another program answers at the address of a worker, after a change of DNS, say.
TEST_F(WorkerTest, C14AStrangerLearnsNothing) {
  std::mutex mutex;
  std::string heard;
  std::string says;
  FunctionHandler stranger([&](FunctionHandler::Request request, HttpResponder responder) {
    const std::lock_guard lock(mutex);
    heard += request.head.method + " " + request.head.target + request.body;
    for (const auto& [name, value] : request.head.headers) heard += fmt::format("\n{}: {}", name, value);
    HttpReply reply = TextReply(says);
    reply.headers.Add(kVersionHeader, std::to_string(kServiceVersion));
    responder.Send(std::move(reply));
  });
  const auto server = HttpServer::Start(runtime_.loops(), {}, stranger);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string token = "0123456789abcdef";
  for (const std::string& answer : {std::string(), std::string(97, 'a'), std::string("millrace worker")}) {
    {
      const std::lock_guard lock(mutex);
      says = answer;
    }
    WorkerCalls calls(runtime_, {.token = token, .job = "a-job"});
    const HttpEndpoint there{.host = "127.0.0.1", .port = (*server)->port()};
    const WorkerAnswer got = AskPatiently(calls, there, "GET", "/millrace/hello");
    EXPECT_EQ(got.status, 401) << answer;
    EXPECT_THAT(got.text, HasSubstr(answer.empty() ? "the worker does not" : "is not the worker's"));
  }
  const std::lock_guard lock(mutex);
  EXPECT_THAT(heard, HasSubstr("GET /millrace/challenge"));
  for (const std::string& secret : {token, std::string("a-job"), std::string("hello")}) {
    EXPECT_EQ(heard.find(secret), heard.npos) << secret;
  }
}

TEST_F(WorkerTest, C14AWorkerThatWasStartedAgainIsAskedForItsProofAgain) {
  const std::string token = "0123456789abcdef";
  Start(token);
  const uint16_t port = worker_->port();
  WorkerCalls calls(runtime_, {.token = token});
  const HttpEndpoint endpoint{.host = "127.0.0.1", .port = port};
  EXPECT_EQ(AskPatiently(calls, endpoint, "GET", "/millrace/hello").status, 200);
  worker_.reset();
  absl::StatusOr<std::unique_ptr<Worker>> again =
      Worker::Start(runtime_, stores_, {.port = port, .token = token, .allow = {"mem://allowed"}});
  if (absl::IsAlreadyExists(again.status())) GTEST_SKIP() << "another process has taken the port";
  ASSERT_TRUE(again.ok()) << again.status();
  worker_ = *std::move(again);
  EXPECT_EQ(AskPatiently(calls, endpoint, "GET", "/millrace/hello").status, 200);
}

// C14: a proof covers what the request asks for, and its body.
TEST_F(WorkerTest, C14AProofOpensNoOtherStream) {
  const std::string token = "0123456789abcdef";
  Start(token);
  TokenKey key(token, std::string(kWorkerPurpose));
  const std::string version = "Millrace-Service: " + std::to_string(kServiceVersion) + "\r\n";
  ASSERT_TRUE(key.Accept(
      Body(Raw(Request("GET", "/millrace/challenge", version + "Millrace-Nonce: " + key.nonce() + "\r\n")))));
  HttpRequestHead head{"POST", "/millrace/open", {}};
  const std::string digest = HexEncode(Sha256(AsBytes(std::string_view("mine"))));
  head.headers.Add(kDigestHeader, digest);
  const std::string headers = fmt::format("{}{}: {}\r\n{}: {}\r\nContent-Length: 4\r\n", version, kDigestHeader, digest,
                                          kProofHeader, key.Prove(ProvedText(head)));
  EXPECT_THAT(Raw(Request("POST", "/millrace/open", headers) + "hers"), HasSubstr(" 401 "));
  EXPECT_THAT(Raw(Request("POST", "/millrace/open", headers + "Millrace-Job: x\r\n") + "mine"), HasSubstr(" 401 "));
  EXPECT_EQ(worker_->sessions(), 0u);
  EXPECT_THAT(Raw(Request("POST", "/millrace/open", headers) + "mine"), HasSubstr(" 201 "));
}

// The handshakes, and not the network path, may be what takes long then.
TEST_F(WorkerTest, AnswersSayWhetherTheirRequestHasOpenedAConnection) {
  Start();
  WorkerCalls calls(runtime_, {});
  const HttpEndpoint endpoint{.host = "127.0.0.1", .port = worker_->port()};
  const WorkerAnswer first = calls.Ask(endpoint, "GET", "/millrace/hello");
  EXPECT_TRUE(first.on_new_connection);
  EXPECT_GE(first.begun, first.asked);
  const WorkerAnswer second = calls.Ask(endpoint, "GET", "/millrace/hello");
  EXPECT_FALSE(second.on_new_connection);
  EXPECT_GE(second.asked, first.begun);
  EXPECT_GE(second.begun, second.asked);
}

TEST_F(WorkerTest, RefusesWhatNoTrainerAsksFor) {
  Start();
  const std::string version = "Millrace-Service: " + std::to_string(kServiceVersion) + "\r\n";
  const std::string session(32, 'a');
  EXPECT_THAT(Raw(Request("GET", "/", version)), HasSubstr(" 400 "));
  EXPECT_THAT(Raw(Request("GET", "/millrace/next?session=zz&sequence=1", version)), HasSubstr(" 400 "));
  EXPECT_THAT(Raw(Request("GET", "/millrace/next?session=" + session + "&sequence=-1", version)), HasSubstr(" 400 "));
  EXPECT_THAT(Raw(Request("GET", "/millrace/next?session=" + session + "&sequence=0", version)), HasSubstr(" 404 "));
  EXPECT_THAT(Raw(Request("POST", "/millrace/close?session=" + session, version + "Content-Length: 0\r\n")),
              HasSubstr(" 404 "));
  EXPECT_THAT(Raw(Request("POST", "/millrace/open", version + "Content-Length: 99999999\r\n")), HasSubstr(" 413 "));
  EXPECT_THAT(Raw(Request("POST", "/millrace/open", version + "Content-Length: 67000000\r\n")), HasSubstr(" 503 "));
  EXPECT_EQ(worker_->sessions(), 0u);
}

TEST_F(WorkerTest, SaysWhatIsWrongWithAStreamWhenItIsAskedForABatch) {
  Start();
  WorkerCalls calls(runtime_, {});
  const HttpEndpoint endpoint{.host = "127.0.0.1", .port = worker_->port()};
  std::string session = Raw(Request(
      "POST", "/millrace/open", "Millrace-Service: " + std::to_string(kServiceVersion) + "\r\nContent-Length: 0\r\n"));
  session = session.substr(session.find("\r\n\r\n") + 4);
  ASSERT_EQ(session.size(), 32u);
  EXPECT_EQ(worker_->sessions(), 1u);
  const WorkerAnswer answer = calls.Ask(endpoint, "GET", "/millrace/next?sequence=0&session=" + session);
  EXPECT_EQ(answer.lost, "");
  EXPECT_TRUE(answer.is_worker);
  EXPECT_EQ(answer.code, static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(answer.text, HasSubstr("is damaged"));
  EXPECT_EQ(calls.Ask(endpoint, "POST", "/millrace/close?session=" + session).status, 200);
  EXPECT_EQ(worker_->sessions(), 0u);
}

// Requests to a store pass through a gate, which counts them; while it is shut, they wait.
class Gate {
 public:
  class Store final : public ForwardingStore {
   public:
    Store(std::unique_ptr<ObjectStore> below, Gate& gate) : ForwardingStore(std::move(below)), gate_(gate) {}
    ~Store() override { Close(); }
    void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override {
      gate_.Pass([=, this, done = std::move(done)]() mutable { below().Get(key, into, options, std::move(done)); });
    }
    void Head(std::string key, HeadOptions options, HeadCallback done) override {
      gate_.Pass([=, this, done = std::move(done)]() mutable { below().Head(key, options, std::move(done)); });
    }
    void List(ListOptions options, ListCallback done) override {
      gate_.Pass([=, this, done = std::move(done)]() mutable { below().List(options, std::move(done)); });
    }

   private:
    Gate& gate_;
  };

  void Shut() {
    const std::lock_guard lock(mutex_);
    shut_ = true;
  }
  void AwaitHeld() {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(300), [this] { return !held_.empty(); }));
  }
  void AwaitPassed(int requests) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(300), [&] { return passed_ >= requests; }));
  }
  int passed() {
    const std::lock_guard lock(mutex_);
    return passed_;
  }
  void Open() {
    std::vector<std::function<void()>> held;
    {
      const std::lock_guard lock(mutex_);
      shut_ = false;
      held.swap(held_);
      passed_ += static_cast<int>(held.size());
      changed_.notify_all();
    }
    for (const std::function<void()>& request : held) request();
  }

 private:
  template <typename Request>
  void Pass(Request request) {
    std::unique_lock lock(mutex_);
    if (!shut_) {
      ++passed_;
      changed_.notify_all();
      lock.unlock();
      return request();
    }
    const auto kept = std::make_shared<Request>(std::move(request));
    held_.push_back([kept] { (*kept)(); });
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool shut_ = false;
  int passed_ = 0;
  std::vector<std::function<void()>> held_;
};

// Else a data set that takes a worker longer than a trainer waits would never be open.
TEST(WorkerOpeningTest, GoesOnWhenItsStreamIsClosed) {
  Gate gate;
  Runtime runtime({.io_threads = 1, .cpu_threads = 1, .memory_bytes = uint64_t{256} << 20});
  Stores stores(runtime, [&gate](std::unique_ptr<ObjectStore> below) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    return std::make_unique<Gate::Store>(std::move(below), gate);
  });
  const Location data = *stores.Open("mem://data");
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(PutBlocking(*data.store, "a/" + std::to_string(i) + ".txt", AsBytes("text")).ok());
  }
  LoaderOptions options;
  options.fields = {{.name = "text", .field = "txt", .kind = BatchField::Kind::kText}};
  options.batch = 2;
  options.memory_bytes = uint64_t{64} << 20;
  std::string spec;
  int of_opening = 0;
  for (int again = 0; again < 2; ++again) {  // the first one makes the index
    const int before = gate.passed();
    absl::StatusOr<std::unique_ptr<Dataset>> dataset = Dataset::Open(runtime, stores, "mem://data");
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    of_opening = gate.passed() - before;
    absl::StatusOr<LoaderPlan> plan = Settle(**dataset, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    options.start = Position{0, 0, plan->fingerprint};
    absl::StatusOr<StreamSpec> made = SpecOf(**dataset, options);
    ASSERT_TRUE(made.ok()) << made.status();
    spec = EncodeStreamSpec(*made);
  }
  const std::unique_ptr<Worker> worker = *Worker::Start(runtime, stores, {.port = 0});
  WorkerCalls calls(runtime, {});
  const HttpEndpoint endpoint{.host = "127.0.0.1", .port = worker->port()};
  const auto open = [&] {
    const auto session = std::make_shared<std::promise<std::string>>();  // set_value may outlast the wait for it
    calls.Start(endpoint, "POST", "/millrace/open", spec, 0,
                [session](const WorkerAnswer& answer) { session->set_value(answer.text); });
    return session->get_future().get();
  };
  ASSERT_GT(of_opening, 1);
  const int before = gate.passed();
  gate.Shut();
  const std::string first = open();
  gate.AwaitHeld();
  EXPECT_EQ(calls.Ask(endpoint, "POST", "/millrace/close?session=" + first).status, 200);
  // Others that are closed while they wait for that opening are gone: more of them come than a worker has streams.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  for (size_t closed = 0; closed < 2 * Worker::kMaxSessions;) {
    const std::string session = open();
    if (session.size() != 32) {  // a moment ago there were too many
      ASSERT_THAT(session, HasSubstr("streams already"));
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      continue;
    }
    EXPECT_EQ(calls.Ask(endpoint, "POST", "/millrace/close?session=" + session).status, 200);
    ++closed;
  }
  gate.Open();
  gate.AwaitPassed(before + of_opening);
  std::string second = open();
  while (second.size() != 32) second = open();  // those that were closed are about to end
  WorkerAnswer answer;
  do {
    answer = calls.Ask(endpoint, "GET", "/millrace/next?sequence=0&session=" + second);
  } while (answer.status == 204);
  EXPECT_EQ(answer.status, 200) << answer.text;
}

// Each look takes half a second.
constexpr int kMostLooks = 600;

// There is a data set of texts, the worker that reads it, and sessions of a loader that neither shuffles nor ends.
class WorkerSessionTest : public ::testing::Test {
 protected:
  WorkerSessionTest()
      : runtime_({.io_threads = 1, .cpu_threads = 1, .memory_bytes = uint64_t{256} << 20}),
        stores_(runtime_, [this](std::unique_ptr<ObjectStore> below) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
          return std::make_unique<Gate::Store>(std::move(below), gate_);
        }) {}

  // Every second text is a long one.
  void Start(int samples, const WorkerOptions& options, size_t long_text = 5000) {
    const Location data = *stores_.Open("mem://data");
    for (int i = 0; i < samples; ++i) {
      const std::string text = std::string(i % 2 == 0 ? 0 : long_text, 'x') + std::to_string(i);
      ASSERT_TRUE(PutBlocking(*data.store, fmt::format("a/{:03}.txt", i), AsBytes(text)).ok());
    }
    loader_.fields = {{.name = "text", .field = "txt", .kind = BatchField::Kind::kText}};
    loader_.batch = 2;
    loader_.epochs = 0;
    loader_.shuffle = Shuffle::kNone;
    loader_.memory_bytes = uint64_t{64} << 20;
    absl::StatusOr<std::unique_ptr<Dataset>> dataset = Dataset::Open(runtime_, stores_, "mem://data");
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    dataset_ = *std::move(dataset);
    absl::StatusOr<LoaderPlan> plan = Settle(*dataset_, loader_);
    ASSERT_TRUE(plan.ok()) << plan.status();
    fingerprint_ = plan->fingerprint;
    absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Start(runtime_, stores_, options);
    ASSERT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
    calls_.emplace(runtime_, TrainerFacts());
  }
  HttpEndpoint Endpoint() const { return {.host = "127.0.0.1", .port = worker_->port()}; }

  // Opens a new session that begins there.
  std::string Open(uint64_t consumed, const std::optional<RowFunction>& function = std::nullopt) {
    loader_.start = Position{0, consumed, fingerprint_};
    StreamSpec spec = *SpecOf(*dataset_, loader_);
    spec.function = function;
    const WorkerAnswer answer = Call("POST", "/millrace/open", EncodeStreamSpec(spec), 0);
    EXPECT_EQ(answer.lost, "");
    return answer.text;
  }
  WorkerAnswer Ask(const std::string& session, int sequence) {
    for (int looks = 0;; ++looks) {
      WorkerAnswer answer =
          Call("GET", fmt::format("/millrace/next?session={}&sequence={}", session, sequence), "", 16 << 20);
      if (answer.status != 204 || looks == kMostLooks) return answer;
    }
  }
  WorkerAnswer Call(const char* method, const std::string& target, std::string body, uint64_t most_bytes) {
    const auto promise = std::make_shared<std::promise<WorkerAnswer>>();  // set_value may outlast the wait for it
    calls_->Start(Endpoint(), method, target, std::move(body), most_bytes,
                  [promise](WorkerAnswer answer) { promise->set_value(std::move(answer)); });
    return promise->get_future().get();
  }
  // Returns a batch of the session: position and texts.
  std::string Next(const std::string& session, int sequence) {
    const WorkerAnswer answer = Ask(session, sequence);
    EXPECT_EQ(answer.status, 200) << answer.text << answer.lost;
    const absl::StatusOr<WireBatch> frame = ParseFrame(answer.bytes, answer.crc);
    EXPECT_TRUE(frame.ok()) << frame.status();
    if (!frame.ok()) return "";
    std::string line = frame->facts.position.ToString();
    for (const std::string& row : frame->facts.values.back().rows) line += " " + row;
    return line;
  }
  // Returns so many batches of a new session.
  std::vector<std::string> Read(uint64_t consumed, int batches) {
    const std::string session = Open(consumed);
    std::vector<std::string> got;
    for (int sequence = 0; sequence < batches; ++sequence) got.push_back(Next(session, sequence));
    EXPECT_EQ(calls_->Ask(Endpoint(), "POST", "/millrace/close?session=" + session).status, 200);
    return got;
  }

  Gate gate_;
  Runtime runtime_;
  Stores stores_;
  LoaderOptions loader_;
  std::unique_ptr<Dataset> dataset_;
  uint64_t fingerprint_ = 0;
  std::unique_ptr<Worker> worker_;
  std::optional<WorkerCalls> calls_;
};

// The second epoch, and another trainer's first one, need no store.
TEST_F(WorkerSessionTest, SendsBatchesThatItHasDecodedBefore) {
  Start(5, {.port = 0, .kept_bytes = 1 << 20});
  const std::vector<std::string> twice = Read(0, 6);  // three an epoch
  EXPECT_NE(twice[0], twice[3]);                      // they differ by their epoch
  gate_.Shut();
  EXPECT_EQ(Read(0, 6), twice);
  EXPECT_EQ(Read(2, 4), std::vector<std::string>(twice.begin() + 1, twice.begin() + 5));
  gate_.Open();
  // From a place between those that are kept, it is decoded.
  EXPECT_EQ(Read(1, 3).size(), 3u);
}

// Each has a batch from what the other one has decoded, in turn, so that its loader is one batch behind: neither begins
// its loader again for that.
TEST_F(WorkerSessionTest, TwoTrainersOfAStreamKeepTheirLoaders) {
  constexpr int kTogether = WorkerSession::kMostSkipped + 8;
  constexpr int kBatches = kTogether + 10;
  Start(2 * kBatches, {.port = 0, .kept_bytes = 1 << 20});
  const auto begun = [this] {
    uint64_t loaders = 0;
    for (const auto& [name, sum] : worker_->counts().loaders.Sums()) loaders += sum.begun;
    return loaders;
  };
  const std::string late = Open(0);
  const std::string first = Next(late, 0);
  const std::vector<std::string> sessions{Open(0), Open(0)};
  std::vector<std::string> got[2];
  for (int sequence = 0; sequence < kTogether; ++sequence) {
    for (const int turn : {0, 1}) {
      const int trainer = (sequence + turn) % 2;
      got[trainer].push_back(Next(sessions[trainer], sequence));
    }
    EXPECT_EQ(Ask(late, 0).status, 404) << "it was asked for before; a session that is asked for nothing would end";
  }
  EXPECT_EQ(got[0], got[1]);
  EXPECT_EQ(got[0].front(), first);
  EXPECT_NE(got[0].front(), got[0].back());
  EXPECT_EQ(begun(), 3u) << "one of each session";
  // A loader that is far behind begins again, once.
  for (int sequence = 1; sequence < kBatches; ++sequence) {
    const std::string batch = Next(late, sequence);
    EXPECT_EQ(batch, sequence < kTogether ? got[0][sequence] : Next(sessions[0], sequence));
  }
  EXPECT_EQ(begun(), 4u);
}

// The batch holds up neither the batches after it nor other sessions. It is larger than what the system takes of it,
// here at least.
TEST_F(WorkerSessionTest, ABatchThatNobodyReadsHoldsUpNoOther) {
  Start(8, {.port = 0}, size_t{6} << 20);
  const std::string session = Open(0);
  RawClient idle(worker_->port());
  const timeval timeout{300, 0};
  setsockopt(idle.fd(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  std::string head;
  do {  // until the batch is there, of which it reads no more than comes with the head
    idle.Send(
        fmt::format("GET /millrace/next?session={}&sequence=0 HTTP/1.1\r\nHost: x\r\nMillrace-Service: {}\r\n\r\n",
                    session, kServiceVersion));
    head = idle.ReadUntil("\r\n\r\n");
  } while (head.find(" 204 ") != head.npos);
  ASSERT_THAT(head, HasSubstr(" 200 "));
  for (int sequence = 1; sequence < 6; ++sequence) {
    EXPECT_TRUE(Next(session, sequence).ends_with("x" + std::to_string((2 * sequence + 1) % 8))) << sequence;
  }
  const std::string other = Open(0);
  EXPECT_TRUE(Next(other, 0).ends_with("x1"));
  for (const std::string& each : {session, other}) {
    EXPECT_EQ(calls_->Ask(Endpoint(), "POST", "/millrace/close?session=" + each).status, 200);
  }
  EXPECT_EQ(worker_->sessions(), 0u);
}

// Doubles each text, and says what the budget has then.
class Doubling final : public RowFunctions {
 public:
  explicit Doubling(MemoryBudget& budget) : budget_(budget) {}
  absl::Status Check(const RowFunction&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<std::string>> Apply(const RowFunction&, const BatchShape&, uint64_t,
                                                 Batch batch) override {
    least_used_ = std::min(least_used_.load(), budget_.used());
    std::vector<std::string> rows;
    for (const std::string& row : batch.values[0].rows) rows.push_back(row + row);
    return rows;
  }
  uint64_t least_used() const { return least_used_; }

 private:
  MemoryBudget& budget_;
  std::atomic<uint64_t> least_used_{UINT64_MAX};
};

TEST_F(WorkerSessionTest, ResultsOfFunctionsAreInItsMemory) {
  constexpr uint64_t kMost = uint64_t{20} << 20;
  const auto functions = std::make_shared<Doubling>(runtime_.memory());
  Start(20, {.port = 0, .functions = functions});
  const std::string session = Open(0, RowFunction{.name = "a:b", .uri = "mem://data", .most_bytes = kMost});
  const std::string text(5000, 'x');
  for (int sequence = 0; sequence < 10; ++sequence) {
    const std::string line = Next(session, sequence);
    EXPECT_THAT(line, HasSubstr(fmt::format(" {}{}{}", text, 2 * sequence + 1, text))) << sequence;
  }
  // The loader has what its data need; while results are made they are there twice.
  EXPECT_GT(functions->least_used(), 2 * kMost);
  // A trainer that wants more than the worker has gets an error that says so.
  const std::string greedy = Open(0, RowFunction{.name = "a:b", .uri = "mem://data", .most_bytes = uint64_t{1} << 40});
  const WorkerAnswer refusal = Ask(greedy, 0);
  EXPECT_EQ(refusal.code, static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(refusal.text, HasSubstr("the results of a function for a batch"));
}

TEST_F(WorkerTest, OtherMachinesNeedATokenAndAPlace) {
  for (const char* host : {"0.0.0.0", "::", "192.0.2.1", "example.com"}) {
    WorkerOptions options{.host = host, .port = 0};
    EXPECT_THAT(Worker::Start(runtime_, stores_, options).status().message(), HasSubstr("--token-file")) << host;
    options.token = "0123456789abcdef";
    EXPECT_THAT(Worker::Start(runtime_, stores_, options).status().message(), HasSubstr("--allow")) << host;
  }
}

TEST(WorkerAddressTest, TakesHostAndPort) {
  EXPECT_EQ(ParseWorkerAddress("10.0.0.1:7070")->host, "10.0.0.1");
  EXPECT_EQ(ParseWorkerAddress("[::1]:80")->host, "::1");
  EXPECT_EQ(ParseWorkerAddress("node-3:65535")->port, 65535);
  for (const char* bad : {"", "host", "host:", ":1", "host:x", "host:65536", "host:1x", "::1:80", "http://h:1", "a b:1",
                          "u@h:1", "[]:1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseWorkerAddress(bad).status())) << bad;
  }
}

TEST(WorkerTokenTest, IsOneSecret) {
  const std::string path = testing::TempDir() + "worker_token-" + std::to_string(getpid());
  const auto token_of = [&path](const std::string& text) {
    FILE* file = fopen(path.c_str(), "wb");
    fwrite(text.data(), 1, text.size(), file);
    fclose(file);
    return ReadWorkerToken(path);
  };
  EXPECT_EQ(*ReadWorkerToken(""), "");
  EXPECT_EQ(*token_of(" 0123456789abcdef\n"), "0123456789abcdef");
  for (const std::string& bad : {std::string("short"), std::string("0123456789 abcdef"), std::string(3000, 'x')}) {
    const absl::Status status = token_of(bad).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(status.message(), ::testing::Not(HasSubstr(bad)));
  }
  EXPECT_TRUE(absl::IsNotFound(ReadWorkerToken(path + "-not-there").status()));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace millrace
