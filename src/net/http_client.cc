#include "net/http_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <utility>

#include "base/in_flight.h"
#include "net/http_connection.h"
#include "net/name_lookup.h"

namespace millrace {

namespace asio = boost::asio;

namespace {

// S3 spreads load by changing its DNS answers every few seconds.
constexpr std::chrono::seconds kAddressLifetime{5};

// After less than that no server closes a connection; one that does all the same costs a request on a new one.
constexpr std::chrono::seconds kSurelyAlive{1};

/// Holds what the loops share.
class Shared {
 public:
  explicit Shared(HttpClientOptions settings) : options(std::move(settings)) {}

  const HttpClientOptions options;

  /// Made at the first need: reading the system's authorities takes milliseconds.
  const absl::StatusOr<std::shared_ptr<asio::ssl::context>>& Tls() {
    std::call_once(tls_once_, [this] {
      tls_ = MakeClientTls(options.ca_file, options.only_ca_file, options.identity ? &*options.identity : nullptr);
    });
    return tls_;
  }

  void CallBegins() { calls_.Begin(); }
  void CallEnds() { calls_.End(); }
  void WaitForNoCalls() { calls_.Wait(); }

 private:
  std::once_flag tls_once_;
  absl::StatusOr<std::shared_ptr<asio::ssl::context>> tls_ = absl::UnknownError("not made");
  InFlight calls_;
};

/// Holds the connections of one loop to one endpoint, and the calls that wait for one. It is used on the loop's thread
/// only.
class Pool final : public HttpConnectionOwner, public std::enable_shared_from_this<Pool> {
 public:
  Pool(EventLoop& loop, Shared& shared, HttpEndpoint endpoint)
      : loop_(loop),
        shared_(shared),
        endpoint_(std::move(endpoint)),
        proxy_(shared.options.proxies.For(endpoint_)),
        lookup_(loop),
        sweep_(loop) {}

  void Begin(std::shared_ptr<HttpJob> job);
  void Cancel(const HttpJob& job);
  void Shutdown();

  const HttpEndpoint& endpoint() const override { return endpoint_; }
  const HttpClientOptions& options() const override { return shared_.options; }
  const HttpProxy* proxy() const override { return proxy_; }
  void Resolve(OnAddresses done) override;
  void OnFound(boost::system::error_code error, const Addresses& found);
  void ForgetAddresses() override { addresses_.clear(); }
  void OnFree(HttpConnection& connection, bool reusable) noexcept override;
  void OnEnded(const std::shared_ptr<HttpJob>&) override { shared_.CallEnds(); }

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  struct Busy {
    std::shared_ptr<HttpConnection> connection;
    std::shared_ptr<HttpJob> job;
  };
  struct Idle {
    std::shared_ptr<HttpConnection> connection;
    SteadyTime since;
  };

  bool Full() const { return busy_.size() + idle_.size() >= static_cast<size_t>(shared_.options.max_connections); }
  void Place(std::shared_ptr<HttpJob> job);
  std::shared_ptr<HttpConnection> TakeBusy(const HttpConnection& connection);
  void KeepIdle(std::shared_ptr<HttpConnection> connection);
  void OpenFor(std::shared_ptr<HttpJob> job);
  void RunOn(std::shared_ptr<HttpConnection> connection, std::shared_ptr<HttpJob> job);
  void EndUnsent(std::shared_ptr<HttpJob> job, HttpErrorKind kind, std::string detail);
  void Sweep();

  EventLoop& loop_;
  Shared& shared_;
  const HttpEndpoint endpoint_;
  const HttpProxy* const proxy_;
  std::deque<std::shared_ptr<HttpJob>> waiting_;
  std::vector<Busy> busy_;
  std::vector<Idle> idle_;  // the one used last at the back, and taken first
  size_t opened_ = 0;
  bool shut_down_ = false;

  NameLookup lookup_;
  Addresses addresses_;
  SteadyTime addresses_expire_;
  std::vector<OnAddresses> resolving_for_;

  Timer sweep_;
  bool sweeping_ = false;
};

void Pool::Begin(std::shared_ptr<HttpJob> job) {
  shared_.CallBegins();
  try {
    Place(std::move(job));
  } catch (const std::exception&) {
    shared_.CallEnds();
    throw;
  }
}

void Pool::Place(std::shared_ptr<HttpJob> job) {
  if (shut_down_) {
    return loop_.Post(
        [self = shared_from_this(), job] { self->EndUnsent(job, HttpErrorKind::kCancelled, "the client is closing"); });
  }
  if (job->request.fresh_connection) {
    if (Full() && !idle_.empty()) {
      idle_.front().connection->Close();
      idle_.erase(idle_.begin());
    }
  } else {
    const SteadyTime fresh = std::chrono::steady_clock::now() - kSurelyAlive;
    while (!idle_.empty()) {
      const auto [connection, since] = std::move(idle_.back());
      idle_.pop_back();
      if (since > fresh || connection->LooksAlive()) return RunOn(connection, std::move(job));
      connection->Close();
    }
  }
  if (!Full()) return OpenFor(std::move(job));
  job->handler->OnPhase(HttpPhase::kQueued);
  waiting_.push_back(std::move(job));
}

void Pool::OpenFor(std::shared_ptr<HttpJob> job) {
  std::shared_ptr<asio::ssl::context> tls;
  if (endpoint_.tls) {
    const auto& made = shared_.Tls();
    if (!made.ok()) {
      return loop_.Post([self = shared_from_this(), job, detail = std::string(made.status().message())] {
        self->EndUnsent(job, HttpErrorKind::kTls, detail);
      });
    }
    tls = *made;
  }
  auto connection = std::make_shared<HttpConnection>(loop_.context(), *this, std::move(tls), opened_++);
  busy_.push_back({connection, job});
  try {
    connection->Open(std::move(job));
  } catch (const std::exception&) {
    TakeBusy(*connection);
    throw;
  }
}

void Pool::RunOn(std::shared_ptr<HttpConnection> connection, std::shared_ptr<HttpJob> job) {
  busy_.push_back({connection, job});
  try {
    connection->Run(std::move(job));
  } catch (const std::exception&) {
    TakeBusy(*connection);
    throw;
  }
}

void Pool::EndUnsent(std::shared_ptr<HttpJob> job, HttpErrorKind kind, std::string detail) {
  HttpResult result;
  result.error = kind;
  result.detail = std::move(detail);
  TellEnd(*job->handler, std::move(result));
  shared_.CallEnds();
}

std::shared_ptr<HttpConnection> Pool::TakeBusy(const HttpConnection& connection) {
  const auto at =
      std::find_if(busy_.begin(), busy_.end(), [&](const Busy& busy) { return busy.connection.get() == &connection; });
  std::shared_ptr<HttpConnection> taken = std::move(at->connection);
  *at = std::move(busy_.back());
  busy_.pop_back();
  return taken;
}

// A connection that cannot be kept is closed.
void Pool::KeepIdle(std::shared_ptr<HttpConnection> connection) {
  try {
    idle_.push_back({std::move(connection), std::chrono::steady_clock::now()});
    if (!sweeping_) Sweep();
  } catch (const std::exception& error) {
    LogException("net", error);
  }
}

void Pool::OnFree(HttpConnection& connection, bool reusable) noexcept {
  const std::shared_ptr<HttpConnection> self = TakeBusy(connection);
  while (!waiting_.empty()) {
    const std::shared_ptr<HttpJob> next = std::move(waiting_.front());
    waiting_.pop_front();
    try {
      if (reusable && !next->request.fresh_connection) return RunOn(self, next);
      self->Close();
      return OpenFor(next);
    } catch (const std::exception& error) {  // those after it must not wait for what it did not get
      LogException("net", error);
      TellEnd(*next->handler, BrokenByException());
      shared_.CallEnds();
      reusable = false;
    }
  }
  if (reusable) KeepIdle(self);
}

void Pool::Cancel(const HttpJob& job) {
  const auto busy =
      std::find_if(busy_.begin(), busy_.end(), [&](const Busy& entry) { return entry.job.get() == &job; });
  if (busy != busy_.end()) {
    const std::shared_ptr<HttpConnection> connection = busy->connection;
    return connection->Cancel();
  }
  const auto waiting =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& one) { return one.get() == &job; });
  if (waiting == waiting_.end()) return;
  const std::shared_ptr<HttpJob> kept = *waiting;
  waiting_.erase(waiting);
  EndUnsent(kept, HttpErrorKind::kCancelled, "cancelled");
}

void Pool::Shutdown() {
  shut_down_ = true;
  for (const std::shared_ptr<HttpJob>& job : std::exchange(waiting_, {})) {
    EndUnsent(job, HttpErrorKind::kCancelled, "the client is closing");
  }
  for (const Busy& busy : std::vector<Busy>(busy_)) busy.connection->Cancel();
  for (const Idle& idle : std::exchange(idle_, {})) idle.connection->Close();
  sweep_.Cancel();
  lookup_.Cancel();
}

/// Closes connections that have been idle for too long, and comes back while there are any.
void Pool::Sweep() {
  const SteadyTime oldest = std::chrono::steady_clock::now() - shared_.options.keep_idle;
  std::erase_if(idle_, [oldest](const Idle& idle) {
    if (idle.since > oldest) return false;
    idle.connection->Close();
    return true;
  });
  sweeping_ = false;
  if (idle_.empty()) return;
  sweep_.Start(shared_.options.keep_idle / 2, [this] { Sweep(); });
  sweeping_ = true;
}

void Pool::Resolve(OnAddresses done) {
  const HttpEndpoint& peer = proxy_ != nullptr ? proxy_->server : endpoint_;
  boost::system::error_code not_an_address;
  const asio::ip::address literal = asio::ip::make_address(peer.host, not_an_address);
  if (!not_an_address) return done({}, {asio::ip::tcp::endpoint(literal, peer.port)});
  if (!addresses_.empty() && std::chrono::steady_clock::now() < addresses_expire_) return done({}, addresses_);
  resolving_for_.push_back(std::move(done));
  if (resolving_for_.size() > 1) return;
  try {
    lookup_.Start(peer.host, peer.port,
                  [weak = weak_from_this()](const boost::system::error_code& error, const Addresses& found) {
                    if (const std::shared_ptr<Pool> self = weak.lock()) self->OnFound(error, found);
                  });
  } catch (const std::exception&) {
    resolving_for_.clear();  // it was the only one
    throw;
  }
}

void Pool::OnFound(boost::system::error_code error, const Addresses& found) {
  Addresses addresses;
  try {
    addresses_ = found;
    addresses_expire_ = std::chrono::steady_clock::now() + kAddressLifetime;
    addresses = addresses_;
  } catch (const std::bad_alloc&) {
    error = asio::error::no_memory;
  }
  for (OnAddresses& waiter : std::exchange(resolving_for_, {})) waiter(error, addresses);
}

class Call final : public HttpJob {
 public:
  Call(std::weak_ptr<Pool> pool, HttpRequest&& wanted, HttpResponseHandler& told)
      : HttpJob(std::move(wanted), told), pool_(std::move(pool)) {}
  void Cancel() override {
    if (const std::shared_ptr<Pool> pool = pool_.lock()) pool->Cancel(*this);
  }

 private:
  const std::weak_ptr<Pool> pool_;
};

/// Start returns this for a call that has failed before it began.
class EndedCall final : public HttpCall {
 public:
  void Cancel() override {}
  uint64_t body_bytes() const override { return 0; }
};

/// Holds the pools of one loop.
struct LoopPools {
  EventLoop* loop = nullptr;
  bool shut_down = false;
  std::vector<std::shared_ptr<Pool>> pools;  // few: one for each endpoint in use
};

}  // namespace

struct HttpClient::Impl {
  explicit Impl(HttpClientOptions options) : shared(std::move(options)) {}

  void OnEveryLoop(absl::FunctionRef<void(LoopPools&)> task) {
    for (LoopPools& pools : loops) RunAndWait(*pools.loop, [&] { task(pools); });
  }

  std::shared_ptr<HttpCall> Begin(EventLoop& loop, HttpRequest&& request, HttpResponseHandler& handler);
  void EndLater(EventLoop& loop, HttpResponseHandler& handler);

  Shared shared;
  std::vector<LoopPools> loops;
  const std::shared_ptr<HttpCall> ended = std::make_shared<EndedCall>();
};

HttpClient::HttpClient(EventLoops& loops, HttpClientOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {
  impl_->loops.resize(loops.size());
  for (size_t i = 0; i < loops.size(); ++i) impl_->loops[i].loop = &loops.at(i);
}

HttpClient::~HttpClient() {
  impl_->OnEveryLoop([](LoopPools& pools) {
    pools.shut_down = true;
    for (const std::shared_ptr<Pool>& pool : pools.pools) pool->Shutdown();
  });
  impl_->shared.WaitForNoCalls();
  // Sockets and timers die on their loop's thread.
  impl_->OnEveryLoop([](LoopPools& pools) { pools.pools.clear(); });
}

std::shared_ptr<HttpCall> HttpClient::Impl::Begin(EventLoop& loop, HttpRequest&& request,
                                                  HttpResponseHandler& handler) {
  LoopPools& mine =
      *std::find_if(loops.begin(), loops.end(), [&](const LoopPools& entry) { return entry.loop == &loop; });
  auto at = std::find_if(mine.pools.begin(), mine.pools.end(),
                         [&](const std::shared_ptr<Pool>& pool) { return pool->endpoint() == request.endpoint; });
  if (at == mine.pools.end()) {
    auto pool = std::make_shared<Pool>(loop, shared, request.endpoint);
    if (mine.shut_down) pool->Shutdown();
    at = mine.pools.insert(mine.pools.end(), std::move(pool));
  }
  const std::shared_ptr<Pool> pool = *at;
  auto call = std::make_shared<Call>(pool, std::move(request), handler);
  pool->Begin(call);
  return call;
}

void HttpClient::Impl::EndLater(EventLoop& loop, HttpResponseHandler& handler) {
  shared.CallBegins();
  try {
    loop.Post([this, &handler] {
      TellEnd(handler, BrokenByException());
      shared.CallEnds();
    });
  } catch (const std::exception&) {
    shared.CallEnds();
    throw;
  }
}

std::shared_ptr<HttpCall> HttpClient::Start(EventLoop& loop, HttpRequest request, HttpResponseHandler& handler) {
  try {
    return impl_->Begin(loop, std::move(request), handler);
  } catch (const std::exception& error) {
    LogException("net", error);
    impl_->EndLater(loop, handler);
    return impl_->ended;
  }
}

}  // namespace millrace
