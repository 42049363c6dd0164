#include "s3/client.h"

#include <atomic>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "aws/credential_loader.h"
#include "base/crypto.h"
#include "base/in_flight.h"
#include "base/log_exception.h"
#include "base/rng.h"
#include "net/http_client.h"
#include "net/sure_answer.h"
#include "s3/abort_exchange.h"
#include "s3/calls.h"
#include "s3/context.h"
#include "s3/copy_exchange.h"
#include "s3/delete_objects_exchange.h"
#include "s3/get_exchange.h"
#include "s3/object_exchanges.h"
#include "s3/operation.h"

namespace millrace {

namespace {

int Permits(const S3Config& config, size_t loops) {
  return std::max(1, config.max_connections / static_cast<int>(loops));
}

HttpClientOptions HttpOptions(const S3Config& config, size_t loops) {
  HttpClientOptions options;
  // There are a few more connections than operations, so that second requests do not wait for one.
  options.max_connections = Permits(config, loops) + Permits(config, loops) / 8 + 1;
  options.ca_file = config.ca_file;
  options.proxies = config.proxies;
  return options;
}

auto JustInfo(SureAnswer<absl::StatusOr<ObjectInfo>> done) {
  return [done = std::move(done)](absl::StatusOr<ObjectDescription> object) mutable {
    if (!object.ok()) return done(std::move(object).status());
    done(std::move(object->info));
  };
}

uint64_t RandomSeed() {
  const std::string random = RandomHex(16);
  return Xxh3(AsBytes(random));
}

}  // namespace

class S3Client::Impl {
 public:
  Impl(Runtime& runtime, S3Config settings)
      : runtime_(runtime),
        context_(
            std::move(settings), RandomSeed(),
            [this](CredentialsProvider::Fetched done) { loader_->Fetch(std::move(done)); },
            [this](std::string bucket, CredentialsProvider::Fetched done) {
              CreateSession(std::move(bucket), std::move(done));
            }),
        environment_{http_, context_, operations_},
        http_(runtime.loops(), HttpOptions(context_.config, runtime.loops().size())) {
    if (context_.config.credential_environment != nullptr)
      loader_.emplace(runtime, http_, context_.config.credential_environment, context_.NextJitterKey());
    for (size_t i = 0; i < runtime.loops().size(); ++i) {
      homes_.push_back(
          std::make_unique<S3Loop>(runtime.loops().at(i), Permits(context_.config, runtime.loops().size())));
    }
  }
  ~Impl();

  S3Context& context() { return context_; }

  struct How {
    RequestProgress* progress = nullptr;
    std::stop_token stop;
  };
  /// Makes an exchange and starts it. If that throws, the callback that it was given answers.
  template <typename Exchange, typename... Arguments>
  void Start(How how, Arguments&&... arguments) noexcept {
    const auto make = [](S3Context& context, auto&&... rest) {
      return std::make_unique<Exchange>(context, std::forward<decltype(rest)>(rest)...);
    };
    Make(std::move(how), make, std::forward<Arguments>(arguments)...);
  }
  /// Starts an operation with an exchange that `make` makes.
  template <typename MakeExchange, typename... Arguments>
  void Make(How how, const MakeExchange& make, Arguments&&... arguments) noexcept {
    try {
      Start(std::move(how), make(context_, std::forward<Arguments>(arguments)...));
    } catch (const std::exception& error) {
      LogException("s3", error);
    }
  }

  template <typename Result>
  SureAnswer<Result> Sure(absl::AnyInvocable<void(Result)> done, size_t results = 1) {
    return {runtime_.loops().Next(), std::move(done), results};
  }

 private:
  void Start(How how, std::unique_ptr<S3Exchange> exchange);
  void CreateSession(std::string bucket, CredentialsProvider::Fetched done) {
    auto answer = [this, done = std::move(done)](absl::StatusOr<ExpiringCredentials> session) mutable {
      if (session.ok()) session->expires -= context_.clock_offset();
      done(std::move(session), absl::Now());
    };
    Make({}, NewCreateSessionExchange, std::move(bucket), Sure<absl::StatusOr<ExpiringCredentials>>(std::move(answer)));
  }

  S3Loop& ChooseHome();

  Runtime& runtime_;
  S3Context context_;
  InFlight operations_;
  std::atomic<bool> closing_{false};
  std::atomic<size_t> next_home_{0};            // where the search for the idlest begins
  std::vector<std::unique_ptr<S3Loop>> homes_;  // one a loop
  const S3Operation::Environment environment_;
  HttpClient http_;                         // its loops are done with everything above when it has died
  std::optional<CredentialLoader> loader_;  // last, so that it dies first: it makes calls
};

// Returns the loop with the least work. It is the caller's own loop, which spares waking another thread, unless that
// clearly has more work. A callback that asks for many things at once must not leave the other loops idle.
S3Loop& S3Client::Impl::ChooseHome() {
  const auto load = [](const S3Loop& home) { return home.operations.load(std::memory_order_relaxed); };
  const size_t first = next_home_.fetch_add(1, std::memory_order_relaxed);
  S3Loop* own = nullptr;
  S3Loop* idlest = homes_[first % homes_.size()].get();
  for (size_t i = 0; i < homes_.size(); ++i) {
    S3Loop& home = *homes_[(first + i) % homes_.size()];
    if (home.loop.InLoop()) own = &home;
    if (load(home) < load(*idlest)) idlest = &home;
  }
  return own != nullptr && load(*own) <= load(*idlest) + load(*idlest) / 8 + 1 ? *own : *idlest;
}

void S3Client::Impl::Start(How how, std::unique_ptr<S3Exchange> exchange) {
  S3Loop& home = ChooseHome();
  const auto operation = std::make_shared<S3Operation>(environment_, home, std::move(exchange), how.progress);
  if (how.progress != nullptr) how.progress->store(RequestPhase::kQueued, std::memory_order_relaxed);
  operations_.Begin();
  home.operations.fetch_add(1, std::memory_order_relaxed);
  try {
    home.loop.Post([this, operation, stop = std::move(how.stop)]() mutable {
      operation->Begin(std::move(stop), closing_.load());
    });
  } catch (const std::exception&) {
    home.operations.fetch_sub(1, std::memory_order_relaxed);
    operations_.End();
    throw;
  }
}

S3Client::Impl::~Impl() {
  // Operations that begin from now on are cancelled by themselves.
  closing_.store(true);
  for (const std::unique_ptr<S3Loop>& home : homes_) {
    home->loop.Post([&home] {
      for (const auto& operation : std::vector<std::shared_ptr<S3Operation>>(home->live)) operation->Cancel();
    });
  }
  operations_.Wait();
  for (std::unique_ptr<S3Loop>& home : homes_) RunAndWait(home->loop, [&home] { home.reset(); });
}

S3Client::S3Client(Runtime& runtime, S3Config config) : impl_(std::make_unique<Impl>(runtime, std::move(config))) {}

S3Client::~S3Client() = default;

void S3Client::Get(std::string bucket, std::string key, MutableByteSpan into, GetOptions options, GetCallback done) {
  RequestProgress* const progress = options.progress;
  std::stop_token stop = options.stop;
  impl_->Start<GetExchange>({progress, std::move(stop)}, std::move(bucket), std::move(key), into, std::move(options),
                            impl_->Sure(std::move(done)));
}

void S3Client::Head(std::string bucket, std::string key, HeadCallback done) {
  impl_->Start<HeadExchange>({}, std::move(bucket), std::move(key), JustInfo(impl_->Sure(std::move(done))));
}

void S3Client::Describe(std::string bucket, std::string key, DescribeCallback done) {
  impl_->Start<HeadExchange>({}, std::move(bucket), std::move(key), impl_->Sure(std::move(done)));
}

void S3Client::HeadParts(std::string bucket, std::string key, HeadCallback done) {
  impl_->Start<HeadExchange>({}, std::move(bucket), std::move(key), JustInfo(impl_->Sure(std::move(done))),
                             HeadExchange::Ask::kParts);
}

void S3Client::Tags(std::string bucket, std::string key, TagsCallback done) {
  impl_->Make({}, NewTagsExchange, std::move(bucket), std::move(key), impl_->Sure(std::move(done)));
}

void S3Client::Put(std::string bucket, std::string key, ByteSpan body, PutOptions options, PutCallback done) {
  std::stop_token stop = options.stop;
  impl_->Start<PutExchange>({.stop = std::move(stop)}, std::move(bucket), std::move(key), std::nullopt, body,
                            std::move(options), impl_->Sure(std::move(done)));
}

void S3Client::Delete(std::string bucket, std::string key, DoneCallback done, std::string if_match) {
  impl_->Start<DeleteExchange>({}, std::move(bucket), std::move(key), std::move(if_match),
                               impl_->Sure(std::move(done)));
}

void S3Client::DeleteMany(std::string bucket, std::vector<std::string> keys, DeleteCallback done) {
  impl_->Start<DeleteObjectsExchange>({}, std::move(bucket), std::move(keys),
                                      impl_->Sure(std::move(done), keys.size()));
}

void S3Client::List(std::string bucket, ListOptions options, ListCallback done) {
  impl_->Make({}, NewListExchange, std::move(bucket), std::move(options), impl_->Sure(std::move(done)));
}

void S3Client::ListBuckets(std::string continuation, BucketsCallback done) {
  impl_->Make({}, NewListBucketsExchange, std::move(continuation), impl_->Sure(std::move(done)));
}

void S3Client::ListUploads(std::string bucket, std::string prefix, UploadMarker after, UploadsCallback done) {
  impl_->Make({}, NewListUploadsExchange, std::move(bucket), std::move(prefix), std::move(after),
              impl_->Sure(std::move(done)));
}

void S3Client::Copy(std::string bucket, std::string key, S3CopySource from, PutCallback done, std::stop_token stop,
                    bool only_if_absent) {
  impl_->Start<CopyExchange>({.stop = std::move(stop)}, std::move(bucket), std::move(key), std::move(from),
                             std::nullopt, only_if_absent, impl_->Sure(std::move(done)));
}

void S3Client::CreateMultipart(std::string bucket, std::string key, UploadOptions options,
                               absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) {
  std::stop_token stop = options.stop;
  impl_->Make({.stop = std::move(stop)}, NewCreateMultipartExchange, std::move(bucket), std::move(key),
              std::move(options), impl_->Sure(std::move(done)));
}

void S3Client::UploadPart(std::string bucket, std::string key, std::string upload_id, int number, ByteSpan body,
                          PutCallback done, std::stop_token stop, std::optional<uint32_t> crc32c, bool checksum) {
  impl_->Start<PutExchange>({.stop = std::move(stop)}, std::move(bucket), std::move(key),
                            PutExchange::Part{std::move(upload_id), number, crc32c, checksum}, body, PutOptions{},
                            impl_->Sure(std::move(done)));
}

void S3Client::UploadPartCopy(std::string bucket, std::string key, std::string upload_id, int number, S3CopySource from,
                              ByteRange range, PutCallback done, std::stop_token stop) {
  impl_->Start<CopyExchange>({.stop = std::move(stop)}, std::move(bucket), std::move(key), std::move(from),
                             CopyExchange::Part{std::move(upload_id), number, range}, /*only_if_absent=*/false,
                             impl_->Sure(std::move(done)));
}

void S3Client::CompleteMultipart(std::string bucket, std::string key, std::string upload_id,
                                 std::vector<std::string> part_etags, PutCallback done, CompleteOptions options) {
  impl_->Start<CompleteMultipartExchange>({}, std::move(bucket), std::move(key), std::move(upload_id),
                                          std::move(part_etags), std::move(options), impl_->Sure(std::move(done)));
}

void S3Client::AbortMultipart(std::string bucket, std::string key, std::string upload_id, DoneCallback done) {
  impl_->Start<AbortExchange>({}, std::move(bucket), std::move(key), std::move(upload_id),
                              impl_->Sure(std::move(done)));
}

void S3Client::SetOutageLimit(absl::Duration limit) {
  impl_->context().outage.SetLimit(limit);
}

std::optional<ObjectChecksum::Kind> S3Client::upload_checksum() const {
  const S3Config& config = impl_->context().config;
  return config.checksum_uploads ? std::optional(config.upload_checksum) : std::nullopt;
}

const RequestCounters& S3Client::counters() const {
  return impl_->context().counters;
}

}  // namespace millrace
