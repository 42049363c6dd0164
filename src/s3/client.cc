#include "s3/client.h"

#include <condition_variable>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "absl/time/clock.h"
#include "base/crypto.h"
#include "base/rng.h"
#include "net/http_client.h"
#include "s3/context.h"
#include "s3/get_exchange.h"
#include "s3/object_exchanges.h"

namespace millrace {

namespace {

HttpClientOptions HttpOptions(const S3Config& config, size_t loops) {
  HttpClientOptions options;
  options.max_connections = std::max(1, config.max_connections / static_cast<int>(loops));
  options.ca_file = config.ca_file;
  return options;
}

uint64_t RandomSeed() {
  const std::string random = RandomHex(16);
  return Xxh3(AsBytes(random));
}

RequestPhase ToRequestPhase(HttpPhase phase) {
  switch (phase) {
    case HttpPhase::kQueued:
      return RequestPhase::kQueued;
    case HttpPhase::kConnect:
      return RequestPhase::kConnect;
    case HttpPhase::kFirstByte:
      return RequestPhase::kFirstByte;
    case HttpPhase::kBody:
      return RequestPhase::kBody;
  }
  return RequestPhase::kQueued;
}

}  // namespace

class S3Client::Impl {
 public:
  class Operation;

  Impl(Runtime& runtime, S3Config settings)
      : runtime_(runtime),
        context_(std::move(settings), RandomSeed()),
        http_(runtime.loops(), HttpOptions(context_.config, runtime.loops().size())) {}
  ~Impl();

  S3Context& context() { return context_; }
  void Start(std::unique_ptr<S3Exchange> exchange, RequestProgress* progress = nullptr, std::stop_token stop = {});

 private:
  Runtime& runtime_;
  S3Context context_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::unordered_set<std::shared_ptr<Operation>> operations_;
  bool closing_ = false;
  HttpClient http_;  // last, so that it dies first: its loops are done with everything above then
};

/// Drives one exchange. On its loop's thread, but for the constructor.
class S3Client::Impl::Operation final : public HttpResponseHandler, public std::enable_shared_from_this<Operation> {
 public:
  Operation(Impl& client, EventLoop& loop, std::unique_ptr<S3Exchange> exchange, RequestProgress* progress)
      : client_(client), loop_(loop), exchange_(std::move(exchange)), progress_(progress) {}

  EventLoop& loop() { return loop_; }
  void Begin(std::stop_token stop);
  void Cancel();

  void OnPhase(HttpPhase phase) override { Report(ToRequestPhase(phase)); }
  HttpBodySink OnHead(const HttpResponseHead& head) override { return exchange_->OnHead(head); }
  void OnDone(HttpResult result) override;

 private:
  struct OnStop {
    std::weak_ptr<Operation> operation;
    EventLoop* loop;
    void operator()() const {
      loop->Post([operation = operation] {
        if (const std::shared_ptr<Operation> self = operation.lock()) self->Cancel();
      });
    }
  };

  void Report(RequestPhase phase) {
    if (progress_ != nullptr) progress_->store(phase, std::memory_order_relaxed);
  }
  void Do(const S3Step& step);
  void EndCancelled() {
    exchange_->Abandon(absl::CancelledError("the request was cancelled"));
    End();
  }
  void End();

  Impl& client_;
  EventLoop& loop_;
  std::unique_ptr<S3Exchange> exchange_;
  RequestProgress* const progress_;
  std::shared_ptr<HttpCall> call_;  // while a request is under way
  std::optional<Timer> timer_;      // while waiting
  std::optional<std::stop_callback<OnStop>> stop_;
  bool cancelled_ = false;
  bool ended_ = false;
};

void S3Client::Impl::Operation::Begin(std::stop_token stop) {
  if (cancelled_) return EndCancelled();
  if (stop.stop_possible()) stop_.emplace(std::move(stop), OnStop{weak_from_this(), &loop_});
  Do(exchange_->Begin());
}

void S3Client::Impl::Operation::Cancel() {
  if (cancelled_ || ended_) return;
  cancelled_ = true;
  if (const std::shared_ptr<HttpCall> call = call_) {
    call->Cancel();  // OnDone ends the operation
  } else if (timer_) {
    EndCancelled();
  }
  // Otherwise it has not begun yet, and Begin ends it.
}

void S3Client::Impl::Operation::OnDone(HttpResult result) {
  const std::shared_ptr<Operation> self = shared_from_this();
  call_.reset();
  const S3Step step = exchange_->OnResult(std::move(result), absl::Now());
  if (cancelled_ && step.kind != S3Step::Kind::kDone) return EndCancelled();
  Do(step);
}

void S3Client::Impl::Operation::Do(const S3Step& step) {
  switch (step.kind) {
    case S3Step::Kind::kSend:
      call_ = client_.http_.Start(loop_, exchange_->Request(absl::Now()), *this);
      return;
    case S3Step::Kind::kWait:
      Report(RequestPhase::kThrottled);
      timer_.emplace(loop_);
      timer_->Start(absl::ToChronoNanoseconds(step.wait), [this] {
        const std::shared_ptr<Operation> self = shared_from_this();
        timer_.reset();
        Do({S3Step::Kind::kSend, {}});
      });
      return;
    case S3Step::Kind::kDone:
      return End();
  }
}

void S3Client::Impl::Operation::End() {
  const std::shared_ptr<Operation> self = shared_from_this();
  ended_ = true;
  timer_.reset();
  stop_.reset();
  Report(RequestPhase::kDone);
  exchange_->Finish();
  std::lock_guard lock(client_.mutex_);
  client_.operations_.erase(self);
  if (client_.operations_.empty()) client_.idle_.notify_all();
}

void S3Client::Impl::Start(std::unique_ptr<S3Exchange> exchange, RequestProgress* progress, std::stop_token stop) {
  auto operation = std::make_shared<Operation>(*this, runtime_.loops().Next(), std::move(exchange), progress);
  if (progress != nullptr) progress->store(RequestPhase::kQueued, std::memory_order_relaxed);
  bool closing;
  {
    std::lock_guard lock(mutex_);
    operations_.insert(operation);
    closing = closing_;
  }
  EventLoop& loop = operation->loop();
  loop.Post([operation = std::move(operation), stop = std::move(stop), closing]() mutable {
    if (closing) operation->Cancel();
    operation->Begin(std::move(stop));
  });
}

S3Client::Impl::~Impl() {
  std::unique_lock lock(mutex_);
  closing_ = true;
  for (const std::shared_ptr<Operation>& operation : operations_) {
    operation->loop().Post([operation] { operation->Cancel(); });
  }
  idle_.wait(lock, [this] { return operations_.empty(); });
}

S3Client::S3Client(Runtime& runtime, S3Config config) : impl_(std::make_unique<Impl>(runtime, std::move(config))) {}

S3Client::~S3Client() = default;

void S3Client::Get(std::string bucket, std::string key, MutableByteSpan into, GetOptions options, GetCallback done) {
  RequestProgress* const progress = options.progress;
  std::stop_token stop = options.stop;
  impl_->Start(std::make_unique<GetExchange>(impl_->context(), std::move(bucket), std::move(key), into,
                                             std::move(options), std::move(done)),
               progress, std::move(stop));
}

void S3Client::Head(std::string bucket, std::string key, HeadCallback done) {
  impl_->Start(std::make_unique<HeadExchange>(impl_->context(), std::move(bucket), std::move(key), std::move(done)));
}

void S3Client::Put(std::string bucket, std::string key, ByteSpan body, PutOptions options, PutCallback done) {
  std::stop_token stop = options.stop;
  impl_->Start(std::make_unique<PutExchange>(impl_->context(), std::move(bucket), std::move(key), std::nullopt, body,
                                             std::move(options), std::move(done)),
               nullptr, std::move(stop));
}

void S3Client::Delete(std::string bucket, std::string key, DoneCallback done) {
  impl_->Start(std::make_unique<DeleteExchange>(impl_->context(), std::move(bucket), std::move(key), std::nullopt,
                                                std::move(done)));
}

void S3Client::List(std::string bucket, ListOptions options, ListCallback done) {
  impl_->Start(
      std::make_unique<ListExchange>(impl_->context(), std::move(bucket), std::move(options), std::move(done)));
}

void S3Client::CreateMultipart(std::string bucket, std::string key, PutOptions options,
                               absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) {
  std::stop_token stop = options.stop;
  impl_->Start(std::make_unique<CreateMultipartExchange>(impl_->context(), std::move(bucket), std::move(key),
                                                         std::move(options), std::move(done)),
               nullptr, std::move(stop));
}

void S3Client::UploadPart(std::string bucket, std::string key, std::string upload_id, int number, ByteSpan body,
                          PutCallback done, std::stop_token stop) {
  impl_->Start(std::make_unique<PutExchange>(impl_->context(), std::move(bucket), std::move(key),
                                             PutExchange::Part{std::move(upload_id), number}, body, PutOptions{},
                                             std::move(done)),
               nullptr, std::move(stop));
}

void S3Client::CompleteMultipart(std::string bucket, std::string key, std::string upload_id,
                                 std::vector<std::string> part_etags, PutCallback done, bool only_if_absent) {
  impl_->Start(std::make_unique<CompleteMultipartExchange>(impl_->context(), std::move(bucket), std::move(key),
                                                           std::move(upload_id), std::move(part_etags), only_if_absent,
                                                           std::move(done)));
}

void S3Client::AbortMultipart(std::string bucket, std::string key, std::string upload_id, DoneCallback done) {
  impl_->Start(std::make_unique<DeleteExchange>(impl_->context(), std::move(bucket), std::move(key),
                                                std::move(upload_id), std::move(done)));
}

const RequestCounters& S3Client::counters() const {
  return impl_->context().counters;
}

}  // namespace millrace
