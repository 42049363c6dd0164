#include "service/worker.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "aws/endpoint.h"
#include "base/crypto.h"
#include "base/hex.h"
#include "base/size.h"
#include "service/job_shares.h"
#include "service/token_proof.h"
#include "service/worker_calls.h"
#include "service/worker_session.h"

namespace millrace {

namespace {

using WorkerClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWorkerTick{100};
// Each stream has a few requests in flight, and a host may have many streams.
constexpr size_t kMaxConnections = 4096;
constexpr size_t kMaxPerAddress = 1024;
// A trainer that has asked for nothing for so long is gone, or pauses: then it opens the stream again.
constexpr std::chrono::seconds kSessionIdle{60};

// Says which job a trainer belongs to, and what a stream of it takes.
struct StreamClaim {
  std::string job;
  std::string peer;
  uint64_t bytes = 0;
};

StreamClaim ClaimOf(const HttpRequestHead& head, const HttpRequestFacts& facts) {
  StreamClaim claim;
  claim.peer = facts.peer;
  claim.job = head.headers.Find(kJobHeader).value_or("");
  const std::string_view bytes = head.headers.Find(kMemoryHeader).value_or("");
  std::from_chars(bytes.data(), bytes.data() + bytes.size(), claim.bytes);
  return claim;
}

absl::Status CheckOptions(const WorkerOptions& options) {
  if (IsLoopback(options.host)) return absl::OkStatus();
  if (options.token.empty() && !options.tls) {
    return absl::InvalidArgumentError(fmt::format(
        "other machines reach {}, and a program that reaches a worker reads with its credentials; give it certificates "
        "(--tls) or a secret that trainers must know (--token-file), or listen on 127.0.0.1",
        options.host));
  }
  if (options.allow.empty()) {
    return absl::InvalidArgumentError(fmt::format(
        "other machines reach {}; say below which URIs the worker may read for them (--allow URI)", options.host));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WorkerTarget> ParseWorkerTarget(std::string_view target) {
  const auto refuse = [] { return absl::InvalidArgumentError("a worker has no such thing"); };
  constexpr size_t kSessionChars = 32;
  const size_t question = target.find('?');
  WorkerTarget parsed{.path = std::string(target.substr(0, question))};
  std::string_view query = question == target.npos ? std::string_view() : target.substr(question + 1);
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (equals == pair.npos) return refuse();
    const std::string_view name = pair.substr(0, equals);
    const std::string_view value = pair.substr(equals + 1);
    if (name == "session") {
      const bool is_hex = value.find_first_not_of("0123456789abcdef") == value.npos;
      if (value.size() != kSessionChars || !is_hex) return refuse();
      parsed.session = value;
    } else if (name == "sequence") {
      uint64_t number = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (error != std::errc() || end != value.data() + value.size()) return refuse();
      parsed.sequence = number;
    } else {
      return refuse();
    }
  }
  return parsed;
}

class Worker::Impl final : public HttpHandler {
 public:
  Impl(Runtime& runtime, Stores& stores, const WorkerOptions& options, AllowedPlaces allowed)
      : runtime_(runtime),
        gate_(options.token, std::string(kWorkerPurpose)),
        datasets_(runtime, stores, std::move(allowed), options),
        shares_(runtime.memory().limit() - (options.cache != nullptr ? options.cache->memory_bytes() : 0)) {
    ticker_ = std::thread([this] { Tick(); });
    pthread_setname_np(ticker_.native_handle(), "worker");
  }
  ~Impl() override {
    std::map<std::string, std::shared_ptr<WorkerSession>> sessions;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;  // no session begins any more
      sessions.swap(sessions_);
      wake_.notify_all();
    }
    ticker_.join();
    datasets_.Stop();
    for (auto& [name, session] : sessions) {
      session->Stop();
      ended_.push_back(std::move(session));
    }
    for (const std::shared_ptr<WorkerSession>& session : ended_) session->Join();
    server_.reset();  // waits for requests that are being answered
  }

  absl::Status Listen(const WorkerOptions& options) {
    HttpServerOptions server{.host = options.host, .port = options.port};
    server.max_connections = kMaxConnections;
    server.max_per_address = kMaxPerAddress;
    if (options.tls) {
      server.tls = options.tls->identity;
      server.client_ca_pem = options.tls->ca_pem;
    }
    ASSIGN_OR_RETURN(server_, HttpServer::Start(runtime_.loops(), std::move(server), *this));
    return absl::OkStatus();
  }
  uint16_t port() const { return server_->port(); }
  size_t sessions() const {
    const std::lock_guard lock(mutex_);
    return sessions_.size();
  }
  const WorkerCounts& counts() const { return counts_; }

  std::unique_ptr<HttpExchange> OnRequest(HttpRequestHead head, const HttpRequestFacts& facts,
                                          HttpResponder responder) override;

 private:
  class Opening;
  class Ignored;

  std::optional<HttpReply> RefusalOfVersion(const HttpRequestHead& head) const;
  std::optional<HttpReply> RefusalOfToken(const HttpRequestHead& head) const;
  void Open(const StreamClaim& claim, std::string spec, Reservation memory, HttpResponder responder);
  void EndLocked(std::map<std::string, std::shared_ptr<WorkerSession>>::iterator session);
  size_t CountLocked() const;
  HttpReply Close(const std::string& name);
  std::shared_ptr<WorkerSession> Find(const std::string& name) const;
  void Tick();

  Runtime& runtime_;
  const TokenGate gate_;
  WorkerCounts counts_;
  OpenDatasets datasets_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, std::shared_ptr<WorkerSession>> sessions_;
  JobShares shares_;                                   // of sessions_
  std::vector<std::shared_ptr<WorkerSession>> ended_;  // that were stopped, until they have nothing in flight
  bool stopping_ = false;
  std::thread ticker_;
  std::unique_ptr<HttpServer> server_;
};

/// Reads a request whose body does not matter.
class Worker::Impl::Ignored final : public HttpExchange {
 public:
  void OnBody(ByteSpan) override {}
  void OnBodyEnd() override {}
};

/// Reads the request to open a stream, whose body is its spec.
class Worker::Impl::Opening final : public HttpExchange {
 public:
  /// `digest` is the SHA-256 that the proof of the request covers; nullopt if none is asked for.
  Opening(Impl& worker, StreamClaim claim, uint64_t bytes, std::optional<std::string> digest, Reservation memory,
          HttpResponder responder)
      : worker_(worker),
        claim_(std::move(claim)),
        bytes_(bytes),
        digest_(std::move(digest)),
        memory_(std::move(memory)),
        responder_(std::move(responder)) {}
  void OnBody(ByteSpan bytes) override {
    const ByteSpan taken = bytes.first(std::min(bytes.size(), Room()));
    if (digest_) came_.Update(taken);
    spec_.append(AsText(taken));
  }
  void OnBodyEnd() override {
    HttpResponder responder = std::move(responder_);  // this may end with the answer
    if (digest_ && bytes_ > 0 && HexEncode(came_.Finish()) != *digest_) {
      return responder.Send(WorkerReply(401, "the description of the stream is not the one that the trainer has sent"));
    }
    worker_.Open(claim_, std::move(spec_), std::move(memory_), std::move(responder));
  }

 private:
  size_t Room() const { return bytes_ - spec_.size(); }

  Impl& worker_;
  const StreamClaim claim_;
  const uint64_t bytes_;
  const std::optional<std::string> digest_;
  Sha256Stream came_;
  Reservation memory_;
  HttpResponder responder_;
  std::string spec_;
};

std::optional<HttpReply> Worker::Impl::RefusalOfVersion(const HttpRequestHead& head) const {
  const std::optional<std::string_view> version = head.headers.Find(kVersionHeader);
  if (!version) return WorkerReply(400, "this is a worker of Millrace's data service; only trainers talk to it");
  if (*version != std::to_string(kServiceVersion)) {
    return WorkerReply(426, fmt::format("the trainer speaks version {} of the data service, and the worker version {}; "
                                        "install the same Millrace on both",
                                        std::string(version->substr(0, 20)), kServiceVersion));
  }
  return std::nullopt;
}

std::optional<HttpReply> Worker::Impl::RefusalOfToken(const HttpRequestHead& head) const {
  const TokenGate::Verdict verdict = gate_.Check(head.headers.Find(kProofHeader), ProvedText(head));
  if (verdict == TokenGate::Verdict::kGood) return std::nullopt;
  if (verdict == TokenGate::Verdict::kMissing) {
    return WorkerReply(401, "the worker asks for a token; give the trainer the worker's token file");
  }
  HttpReply reply = WorkerReply(401, "the trainer's token is not the worker's; give both the same token file");
  if (verdict == TokenGate::Verdict::kStale) reply.headers.Add(kStaleProofHeader, "1");
  return reply;
}

std::unique_ptr<HttpExchange> Worker::Impl::OnRequest(HttpRequestHead head, const HttpRequestFacts& facts,
                                                      HttpResponder responder) {
  const auto answer = [&responder](HttpReply reply) {
    responder.Send(std::move(reply));
    return std::make_unique<Ignored>();
  };
  if (std::optional<HttpReply> refusal = RefusalOfVersion(head)) return answer(*std::move(refusal));
  if (head.target == kChallengePath) {
    return answer(WorkerReply(200, gate_.Answer(head.headers.Find(kNonceHeader).value_or(""))));
  }
  if (std::optional<HttpReply> refusal = RefusalOfToken(head)) return answer(*std::move(refusal));
  const absl::StatusOr<WorkerTarget> target = ParseWorkerTarget(head.target);
  if (!target.ok()) return answer(WorkerReply(400, std::string(ToStd(target.status().message()))));
  const bool is_post = head.method == "POST";
  if (target->path == "/millrace/hello") return answer(WorkerReply(200, "millrace worker"));
  if (target->path == "/millrace/open" && is_post) {
    if (!facts.content_length || *facts.content_length > StreamSpec::kMaxBytes) {
      return answer(WorkerReply(413, fmt::format("the description of a stream may have {} bytes; use a subset that "
                                                 "takes less to describe",
                                                 StreamSpec::kMaxBytes)));
    }
    Reservation memory = runtime_.memory().TryReserve(*facts.content_length);
    if (!memory) {
      ++counts_.refused;
      return answer(WorkerReply(503, "the worker's memory is in use; give it more (--memory)"));
    }
    std::optional<std::string> digest;
    if (!gate_.is_open()) digest = head.headers.Find(kDigestHeader).value_or("");
    return std::make_unique<Opening>(*this, ClaimOf(head, facts), *facts.content_length, std::move(digest),
                                     std::move(memory), std::move(responder));
  }
  if (target->path == "/millrace/close" && is_post) return answer(Close(target->session));
  if (target->path == "/millrace/next" && target->sequence) {
    const std::shared_ptr<WorkerSession> session = Find(target->session);
    if (session == nullptr) return answer(WorkerReply(404, "there is no such session (any more)"));
    session->Ask(*target->sequence, std::move(responder), WorkerClock::now());
    return std::make_unique<Ignored>();
  }
  return answer(WorkerReply(400, "a worker has no such thing"));
}

void Worker::Impl::EndLocked(std::map<std::string, std::shared_ptr<WorkerSession>>::iterator session) {
  session->second->Stop();
  ended_.push_back(std::move(session->second));
  shares_.Release(session->first);
  sessions_.erase(session);
  counts_.open = sessions_.size();
}

void Worker::Impl::Open(const StreamClaim& claim, std::string spec, Reservation memory, HttpResponder responder) {
  std::string name = RandomHex(16);
  HttpReply reply = WorkerReply(201, name);
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      reply = WorkerReply(503, "the worker is ending");
    } else if (CountLocked() >= kMaxSessions) {
      reply = WorkerReply(503, fmt::format("the worker has {} streams already; start more workers", kMaxSessions));
    } else if (const uint64_t limit = shares_.total(); claim.bytes > limit) {
      reply = WorkerReply(503, fmt::format("a stream of this job takes {} of memory, and the worker has {}; give it at "
                                           "least --memory {}",
                                           FormatSize(claim.bytes), FormatSize(limit), claim.bytes));
    } else if (const JobShares::Admission admission = shares_.Admit(claim.job, claim.peer, name, claim.bytes);
               !admission.admitted) {
      reply = WorkerReply(
          503, fmt::format("the worker's memory is in use: of {} this job has {}, and its share is {}; start "
                           "more workers, or give them more (--memory)",
                           FormatSize(runtime_.memory().limit()), FormatSize(shares_.UsedBy(claim.job)),
                           FormatSize(shares_.ShareOf(claim.job, claim.peer))));
    } else {
      for (const std::string& closed : admission.closed) {
        if (const auto session = sessions_.find(closed); session != sessions_.end()) EndLocked(session);
      }
      try {
        std::vector<std::weak_ptr<WorkerSession>> ending(ended_.begin(), ended_.end());
        sessions_.emplace(name, std::make_shared<WorkerSession>(datasets_, counts_, std::move(spec), std::move(memory),
                                                                std::move(ending), WorkerClock::now()));
        ++counts_.opened;
        counts_.open = sessions_.size();
      } catch (const std::exception& error) {  // no thread
        shares_.Release(name);
        reply = WorkerReply(503, fmt::format("the worker cannot serve more streams ({})", error.what()));
      }
    }
  }
  if (reply.status != 201) ++counts_.refused;
  responder.Send(std::move(reply));
}

// Counts the sessions that have a thread: also those that are ending.
size_t Worker::Impl::CountLocked() const {
  const auto ending = std::count_if(ended_.begin(), ended_.end(), [](const auto& each) { return !each->stopped(); });
  return sessions_.size() + static_cast<size_t>(ending);
}

HttpReply Worker::Impl::Close(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto session = sessions_.find(name);
  if (session == sessions_.end()) return WorkerReply(404, "there is no such session (any more)");
  EndLocked(session);
  return WorkerReply(200, "");
}

std::shared_ptr<WorkerSession> Worker::Impl::Find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto session = sessions_.find(name);
  return session == sessions_.end() ? nullptr : session->second;
}

// Says "not yet" where a batch takes its time, and ends sessions that nobody uses.
void Worker::Impl::Tick() {
  std::unique_lock lock(mutex_);
  WorkerClock::time_point counted = WorkerClock::now();
  while (!stopping_) {
    const WorkerClock::time_point now = WorkerClock::now();
    const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(now - counted);
    counted += passed;
    counts_.open_ms += static_cast<uint64_t>(passed.count()) * sessions_.size();
    std::vector<std::shared_ptr<WorkerSession>> open;
    for (auto at = sessions_.begin(); at != sessions_.end();) {
      const auto session = at++;
      open.push_back(session->second);
      if (session->second->stopped()) shares_.Release(session->first);  // what it has to say takes no memory
      if (now - session->second->last_used() >= kSessionIdle) EndLocked(session);
    }
    const auto stopped = [](const auto& session) { return session->stopped(); };
    std::vector<std::shared_ptr<WorkerSession>> done;
    std::copy_if(ended_.begin(), ended_.end(), std::back_inserter(done), stopped);
    std::erase_if(ended_, stopped);
    lock.unlock();
    for (const std::shared_ptr<WorkerSession>& session : open) session->Tick(now);
    open.clear();
    // A loop may hold the last pointer, and must not wait.
    for (const std::shared_ptr<WorkerSession>& session : done) session->Join();
    done.clear();
    lock.lock();
    wake_.wait_for(lock, kWorkerTick, [this] { return stopping_; });
  }
}

Worker::Worker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Worker::~Worker() = default;

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(Runtime& runtime, Stores& stores, const WorkerOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  AllowedPlaces allowed;
  if (!options.allow.empty()) {
    ASSIGN_OR_RETURN(allowed, AllowedPlaces::Below(options.allow));
  }
  auto impl = std::make_unique<Impl>(runtime, stores, options, std::move(allowed));
  RETURN_IF_ERROR(impl->Listen(options));
  return std::unique_ptr<Worker>(new Worker(std::move(impl)));
}

uint16_t Worker::port() const {
  return impl_->port();
}

size_t Worker::sessions() const {
  return impl_->sessions();
}

const WorkerCounts& Worker::counts() const {
  return impl_->counts();
}

}  // namespace millrace
