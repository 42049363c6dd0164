#include "service/worker_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <future>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/crypto.h"
#include "base/hex.h"
#include "service/frame.h"
#include "service/stream_spec.h"
#include "service/token_proof.h"

namespace millrace {

/// Holds the keys of workers that have proved to know the token. Thread-safe.
class WorkerKeys {
 public:
  explicit WorkerKeys(std::string token) : token_(std::move(token)) {}

  bool has_token() const { return !token_.empty(); }
  TokenKey New() const { return {token_, std::string(kWorkerPurpose)}; }
  std::optional<TokenKey> Find(const HttpEndpoint& worker) const {
    const std::lock_guard lock(mutex_);
    const auto found = keys_.find({worker.host, worker.port});
    return found == keys_.end() ? std::nullopt : std::optional(found->second);
  }
  void Keep(const HttpEndpoint& worker, TokenKey key) {
    const std::lock_guard lock(mutex_);
    keys_.insert_or_assign({worker.host, worker.port}, std::move(key));
  }
  void Forget(const HttpEndpoint& worker) {
    const std::lock_guard lock(mutex_);
    keys_.erase({worker.host, worker.port});
  }

 private:
  const std::string token_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, uint16_t>, TokenKey> keys_;
};

namespace {

constexpr std::chrono::milliseconds kWorkerTimeout{2000};
constexpr size_t kMaxAnswerText = 8192;
// Smaller memory is not worth keeping.
constexpr uint64_t kLeastUsedAgain = uint64_t{64} << 10;

HttpClientOptions ClientOptions(const std::optional<WorkerTls>& tls) {
  HttpClientOptions options;
  options.max_connections = 1024;  // every stream has a few requests in flight, which wait at the worker
  options.connect_timeout = kWorkerTimeout;
  options.first_byte_timeout = kWorkerTimeout;
  options.stall_timeout = kWorkerTimeout;
  if (tls) {
    options.ca_file = tls->ca_file;
    options.only_ca_file = true;
    options.identity = tls->identity;
    options.tls_name = tls->name;
  }
  return options;
}

std::optional<int> ToInt(std::optional<std::string_view> text) {
  int number = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc()) return {};
  return number;
}

std::string_view LossOf(HttpErrorKind kind) {
  switch (kind) {
    case HttpErrorKind::kConnect:
      return "there is no connection to it";
    case HttpErrorKind::kTls:
      return "it does not take this trainer's TLS, or this trainer not its own";
    case HttpErrorKind::kTimeout:
      return "it does not answer";
    case HttpErrorKind::kMalformed:
    case HttpErrorKind::kTooLarge:
    case HttpErrorKind::kRefused:
      return "its answer is not that of a worker";
    case HttpErrorKind::kCancelled:
      return "cancelled";
    default:
      return "the connection broke";
  }
}

/// Computes the CRC32C of a frame after its head, piece by piece as it comes, while the bytes are in the caches.
class ArrivingCrc {
 public:
  ArrivingCrc() = default;
  explicit ArrivingCrc(std::vector<MutableByteSpan> places) : places_(std::move(places)) {}

  /// So many bytes have come, in all, into one place after the other.
  void Came(uint64_t bytes) {
    while (done_ < bytes) {
      const ByteSpan left = places_[place_].subspan(used_);
      const ByteSpan piece = left.first(std::min<uint64_t>(left.size(), bytes - done_));
      const size_t of_head = std::min<uint64_t>(piece.size(), kFrameHeadBytes - std::min(done_, kHead));
      crc_ = Crc32c(piece.subspan(of_head), crc_);
      done_ += piece.size();
      used_ += piece.size();
      if (piece.size() < left.size()) continue;
      ++place_;
      used_ = 0;
    }
  }
  uint32_t crc() const { return crc_; }

 private:
  static constexpr uint64_t kHead = kFrameHeadBytes;

  std::vector<MutableByteSpan> places_;
  uint64_t done_ = 0;
  size_t place_ = 0;
  size_t used_ = 0;  // of it
  uint32_t crc_ = 0;
};

// Request bodies that are shorter fit into the memory that each connection has.
constexpr size_t kLongBody = 64 << 10;

/// This is one request. It keeps itself alive until the answer.
class PendingCall final : public WorkerCall,
                          public HttpResponseHandler,
                          public std::enable_shared_from_this<PendingCall> {
 public:
  PendingCall(HttpClient& client, WorkerKeys& keys, FrameBuffers& buffers, EventLoop& loop, HttpRequest request,
              std::string body, uint64_t limit, WorkerCalls::OnAnswer done, WorkerCalls::FindRows find_rows)
      : client_(client),
        keys_(keys),
        buffers_(buffers),
        loop_(loop),
        request_(std::move(request)),
        body_(std::move(body)),
        limit_(limit),
        done_(std::move(done)),
        find_rows_(std::move(find_rows)) {
    request_.body = AsBytes(body_);
    long_body_ = body_.size() > kLongBody;
  }

  // A slow link takes its time for a long body: until the answer begins, only the deadlines of the client apply.
  std::chrono::steady_clock::time_point heard() const override {
    return long_body_ && !begun_ ? std::chrono::steady_clock::now() : heard_.load();
  }

  // Runs on the loop.
  void Begin() {
    self_ = shared_from_this();
    if (keys_.has_token()) {
      const std::optional<TokenKey> key = keys_.Find(request_.endpoint);
      if (!key) return Challenge();
      request_.head.headers.Set(kProofHeader, key->Prove(ProvedText(request_.head)));
    }
    call_ = client_.Start(loop_, request_, *this);
  }

  void Cancel() override {
    loop_.Post([self = shared_from_this()] {
      if (self->call_ != nullptr) self->call_->Cancel();
    });
  }

  void OnPhase(HttpPhase phase) override {
    if (phase == HttpPhase::kConnect) answer_.on_new_connection = true;
    if (phase == HttpPhase::kFirstByte) answer_.asked = std::chrono::steady_clock::now();
  }

  HttpBodySink OnHead(HttpResponseHead head) override {
    heard_ = answer_.begun = std::chrono::steady_clock::now();
    begun_ = true;
    answer_.status = head.status;
    answer_.is_worker = head.headers.Has(kVersionHeader);
    is_stale_ = head.status == 401 && head.headers.Has(kStaleProofHeader);
    if (challenge_) return HttpBodySink::Text(kMaxAnswerText);
    answer_.code = ToInt(head.headers.Find(kStatusHeader));
    answer_.plain_bytes = static_cast<uint64_t>(std::max(0, ToInt(head.headers.Find(kPlainBytesHeader)).value_or(0)));
    answer_.waited = std::chrono::microseconds(std::max(0, ToInt(head.headers.Find(kWaitedHeader)).value_or(0)));
    if (head.status != 200 || limit_ == 0) return HttpBodySink::Text(kMaxAnswerText);
    if (!head.content_length || *head.content_length > limit_) return HttpBodySink::Refuse();
    try {
      const int facts = ToInt(head.headers.Find(kFactsHeader)).value_or(0);
      std::vector<MutableByteSpan> places = PlacesOf(facts, *head.content_length);
      if (places.empty()) return HttpBodySink::Refuse();
      crc_ = ArrivingCrc(places);
      return HttpBodySink::IntoPlaces(places, [this](uint64_t bytes) {
        heard_ = std::chrono::steady_clock::now();
        crc_.Came(bytes);
      });
    } catch (const std::bad_alloc&) {
      return HttpBodySink::Refuse();
    }
  }

  void OnDone(HttpResult result) override {
    const std::shared_ptr<PendingCall> self = std::move(self_);
    if (result.error == HttpErrorKind::kStale && !request_.fresh_connection) {
      request_.fresh_connection = true;
      answer_ = {};
      return Begin();
    }
    call_ = nullptr;
    if (result.error == HttpErrorKind::kNone && challenge_ && answer_.status == 200) {
      if (OnProof(result.text)) return Begin();
    } else if (result.error == HttpErrorKind::kNone && is_stale_ && !std::exchange(asked_again_, true)) {
      keys_.Forget(request_.endpoint);  // the worker was started again
      answer_ = {};
      return Begin();
    }
    if (answer_.rows != nullptr) answer_.rows->EndWriting();
    if (result.error != HttpErrorKind::kNone) {
      answer_.lost = fmt::format("{} ({})", LossOf(result.error), result.detail);
      answer_.is_refused = result.error == HttpErrorKind::kTls;
    } else if (answer_.memory != nullptr && result.body_bytes != body_bytes_) {
      answer_.lost = "the connection broke";
    }
    if (!answer_.lost.empty()) answer_.rows.reset();
    answer_.crc = crc_.crc();
    if (answer_.text.empty()) answer_.text = std::move(result.text);
    const WorkerCalls::OnAnswer done = std::move(done_);
    done(std::move(answer_));
  }

 private:
  // Asks for the worker's proof, before anything else.
  void Challenge() {
    challenge_.emplace(keys_.New());
    HttpRequest request{.endpoint = request_.endpoint, .head = {"GET", std::string(kChallengePath), {}}};
    request.fresh_connection = request_.fresh_connection;
    request.head.headers.Add("Host", HostAndPort(request.endpoint.host, request.endpoint.port));
    request.head.headers.Add(kVersionHeader, std::to_string(kServiceVersion));
    request.head.headers.Add(kNonceHeader, challenge_->nonce());
    call_ = client_.Start(loop_, std::move(request), *this);
  }

  // Returns true if the worker knows the token; else the answer says so.
  bool OnProof(std::string_view text) {
    const bool is_good = challenge_->Accept(text);
    if (is_good) {
      keys_.Keep(request_.endpoint, *std::move(challenge_));
      answer_ = {};
      begun_ = false;
    } else {
      answer_.status = 401;
      answer_.text = text.empty() ? "the trainer has a token, and the worker does not; give the worker the token file"
                                  : "the trainer's token is not the worker's; give both the same token file";
    }
    challenge_.reset();
    return is_good;
  }

  // Returns where the bytes of a batch belong. The rows go into the batch's slot, and the bytes before the rows into
  // memory of their own. If the slot is not free, all bytes go into such memory. The result is empty for an answer
  // without bytes.
  std::vector<MutableByteSpan> PlacesOf(int facts, uint64_t bytes) {
    body_bytes_ = bytes;
    if (facts > 0 && find_rows_) {
      answer_.rows = find_rows_();
      std::vector<MutableByteSpan> places = RowPlaces(static_cast<uint64_t>(facts));
      if (!places.empty()) return places;
      answer_.rows.reset();
    }
    if (bytes == 0) return {};
    answer_.memory = buffers_.Take(bytes);
    const MutableByteSpan into = answer_.memory->span().first(bytes);
    answer_.bytes = into;
    return {into};
  }

  // Returns an empty vector unless body_bytes_ are those of facts and rows.
  std::vector<MutableByteSpan> RowPlaces(uint64_t facts) {
    if (answer_.rows == nullptr) return {};
    uint64_t bytes = facts;
    uint64_t small = facts;
    for (const RowsPlace::Array& array : answer_.rows->arrays()) {
      bytes += array.bytes;
      if (array.rows.empty()) small += array.bytes;
    }
    if (bytes != body_bytes_) return {};
    answer_.memory = small < kLeastUsedAgain ? std::make_shared<Buffer>(small) : buffers_.Take(small);
    const MutableByteSpan into = answer_.memory->span().first(small);
    answer_.bytes = into;
    std::vector<MutableByteSpan> places{into.first(facts)};
    MutableByteSpan left = into.subspan(facts);
    for (const RowsPlace::Array& array : answer_.rows->arrays()) {
      places.insert(places.end(), array.rows.begin(), array.rows.end());
      if (!array.rows.empty() || array.bytes == 0) continue;
      places.push_back(left.first(array.bytes));
      left = left.subspan(array.bytes);
    }
    return places;
  }

  HttpClient& client_;
  WorkerKeys& keys_;
  FrameBuffers& buffers_;
  EventLoop& loop_;
  HttpRequest request_;
  const std::string body_;
  const uint64_t limit_;
  WorkerCalls::OnAnswer done_;
  const WorkerCalls::FindRows find_rows_;
  WorkerAnswer answer_;
  uint64_t body_bytes_ = 0;
  bool long_body_ = false;
  std::optional<TokenKey> challenge_;  // while the worker is asked for its proof
  bool is_stale_ = false;              // the answer says that the proof is
  bool asked_again_ = false;           // for that
  std::atomic<bool> begun_{false};
  ArrivingCrc crc_;
  std::atomic<std::chrono::steady_clock::time_point> heard_{std::chrono::steady_clock::now()};
  std::shared_ptr<HttpCall> call_;
  std::shared_ptr<PendingCall> self_;  // in flight
};

}  // namespace

absl::StatusOr<HttpEndpoint> ParseWorkerAddress(std::string_view text) {
  HttpEndpoint endpoint;
  const size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon == text.npos ? 0 : colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const std::string_view port = colon == text.npos ? std::string_view() : text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  const bool is_host = host.find_first_of("/@[] \t\r\n?#") == host.npos && (bracketed || host.find(':') == host.npos);
  if (host.empty() || !is_host || error != std::errc() || end != port.data() + port.size() || port.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("\"{}\" is not the address of a worker; write HOST:PORT, for example 127.0.0.1:7070", text));
  }
  endpoint.host = host;
  return endpoint;
}

std::string ProvedText(const HttpRequestHead& head) {
  const auto value = [&head](std::string_view name) { return head.headers.Find(name).value_or(""); };
  return fmt::format("{}\n{}\n{}\n{}\n{}", head.method, head.target, value(kJobHeader), value(kMemoryHeader),
                     value(kDigestHeader));
}

WorkerCalls::WorkerCalls(Runtime& runtime, const TrainerFacts& trainer)
    : runtime_(runtime),
      trainer_(trainer),
      buffers_(trainer.free_buffers),
      keys_(std::make_unique<WorkerKeys>(trainer.token)),
      client_(runtime.loops(), ClientOptions(trainer.tls)) {}

WorkerCalls::~WorkerCalls() = default;

std::shared_ptr<WorkerCall> WorkerCalls::Start(const HttpEndpoint& worker, std::string method, std::string target,
                                               std::string body, uint64_t limit, OnAnswer done, FindRows find_rows) {
  HttpRequest request{.endpoint = worker, .head = {std::move(method), std::move(target), {}}};
  request.endpoint.tls = trainer_.tls.has_value();
  HttpHeaders& headers = request.head.headers;
  headers.Add("Host", HostAndPort(worker.host, worker.port));
  headers.Add(kVersionHeader, std::to_string(kServiceVersion));
  if (!trainer_.token.empty() && !body.empty()) headers.Add(kDigestHeader, HexEncode(Sha256(AsBytes(body))));
  headers.Add(kJobHeader, trainer_.job);
  headers.Add(kMemoryHeader, std::to_string(trainer_.stream_memory));
  EventLoop& loop = runtime_.loops().Next();
  auto call = std::make_shared<PendingCall>(client_, *keys_, buffers_, loop, std::move(request), std::move(body), limit,
                                            std::move(done), std::move(find_rows));
  loop.Post([call] { call->Begin(); });
  return call;
}

WorkerAnswer WorkerCalls::Ask(const HttpEndpoint& worker, std::string method, std::string target) {
  // The promise is shared, since the caller may be gone before set_value returns.
  const auto promise = std::make_shared<std::promise<WorkerAnswer>>();
  Start(worker, std::move(method), std::move(target), "", 0,
        [promise](WorkerAnswer answer) { promise->set_value(std::move(answer)); });
  return promise->get_future().get();
}

}  // namespace millrace
