#include "devstore/devstore.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "base/errno_status.h"
#include "devstore/ec2_service.h"
#include "devstore/s3_error.h"
#include "devstore/s3_service.h"
#include "devstore/sidecar.h"
#include "devstore/storage.h"
#include "net/runtime.h"

namespace millrace {

namespace {

constexpr int kWorkers = 2;
constexpr int64_t kMaxClockOffset = 100'000'000;  // three years

absl::Status CheckOptions(const DevstoreOptions& options) {
  const LatencyModel& latency = options.latency;
  const auto within = [](double value, double min, double max) { return value >= min && value <= max; };
  constexpr double kMaxMs = 86'400'000;
  if (!within(latency.first_byte_ms, 0, kMaxMs) || !within(latency.tail_ms, 0, kMaxMs)) {
    return absl::InvalidArgumentError("the first byte's time must be 0 to 86400000 ms");
  }
  if (!within(latency.first_byte_sigma, 0, 10))
    return absl::InvalidArgumentError("the first byte's sigma must be 0 to 10");
  if (!within(latency.tail_fraction, 0, 1)) return absl::InvalidArgumentError("the tail's fraction must be 0 to 1");
  if (options.threads < 0 || options.threads > DevstoreOptions::kMaxThreads) {
    return absl::InvalidArgumentError(fmt::format("threads must be 0 to {}", DevstoreOptions::kMaxThreads));
  }
  if (std::abs(options.clock_offset_s) > kMaxClockOffset)
    return absl::InvalidArgumentError(fmt::format("the clock's offset must be within {} s", kMaxClockOffset));
  if (!options.anonymous && (options.access_key.empty() || options.secret_key.empty())) {
    return absl::InvalidArgumentError("access key and secret key must not be empty; --anonymous turns the check off");
  }
  return absl::OkStatus();
}

/// Makes a new folder with the authority's certificate.
absl::StatusOr<std::string> WriteCaFile(const std::string& pem) {
  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  if (error) {
    return absl::InternalError(
        fmt::format("cannot make a folder for the CA file: no folder for temporary files ({}); set TMPDIR to one",
                    error.message()));
  }
  std::string folder = (temporary / "millrace-devstore-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return ErrnoStatus(errno, folder, "making a folder for the CA file");
  const std::string path = folder + "/ca.pem";
  RETURN_IF_ERROR(WriteTextFile(path, pem));
  return path;
}

/// Two services write to it.
void ShareAccessLog(DevstoreOptions& options) {
  if (!options.access_log) return;
  options.access_log = [mutex = std::make_shared<std::mutex>(), log = options.access_log](std::string_view line) {
    std::lock_guard lock(*mutex);
    log(line);
  };
}

absl::Status MakeFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? ErrnoStatus(error.value(), folder, "making the folder of EC2") : absl::OkStatus();
}

}  // namespace

struct Devstore::Impl {
  ~Impl() {
    if (storage) storage->StopWalks();  // the workers end with what they have begun
    if (ca_file.empty()) return;
    unlink(ca_file.c_str());
    rmdir(ca_file.substr(0, ca_file.rfind('/')).c_str());
  }

  std::string host;
  std::string ca_file;
  // In the order of use: each is destroyed before what it uses.
  std::unique_ptr<Storage> storage;
  std::unique_ptr<S3Service> service;
  std::unique_ptr<Ec2Service> ec2;
  std::unique_ptr<ThreadPool> workers;
  std::unique_ptr<EventLoops> loops;
  std::unique_ptr<HttpServer> server;
};

Devstore::Devstore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Devstore::~Devstore() = default;

absl::StatusOr<std::unique_ptr<Devstore>> Devstore::Start(DevstoreOptions options) {
  RETURN_IF_ERROR(CheckOptions(options));
  std::vector<FaultRule> rules;
  for (const std::string& spec : options.faults) {
    ASSIGN_OR_RETURN(FaultRule rule, ParseFaultRule(spec));
    rules.push_back(std::move(rule));
  }
  auto impl = std::make_unique<Impl>();
  impl->host = options.host;
  if (options.root == "mem:") {
    impl->storage = MakeMemStorage(UsableMemory() / 2);
  } else {
    ASSIGN_OR_RETURN(impl->storage, OpenDirStorage(options.root));
  }
  for (const std::string& bucket : options.buckets) {
    if (impl->storage->CheckBucket(bucket).ok()) continue;
    RETURN_IF_ERROR(CheckNewBucketName(bucket));
    RETURN_IF_ERROR(impl->storage->CreateBucket(bucket));
  }
  HttpServerOptions http{.host = options.host, .port = options.port, .tls = std::nullopt};
  if (options.tls) {
    ASSIGN_OR_RETURN(ThrowawayTls tls, MakeThrowawayTls(options.host));
    http.tls = std::move(tls.server);
    ASSIGN_OR_RETURN(impl->ca_file, WriteCaFile(tls.ca_pem));
  }
  impl->workers = std::make_unique<ThreadPool>(kWorkers, "devstore");
  if (!options.ec2_folder.empty()) ShareAccessLog(options);
  impl->service = std::make_unique<S3Service>(*impl->storage, *impl->workers, options, rules);
  HttpHandler* handler = impl->service.get();
  if (!options.ec2_folder.empty()) {
    RETURN_IF_ERROR(MakeFolder(options.ec2_folder));
    impl->ec2 = std::make_unique<Ec2Service>(*impl->service, options, std::move(rules));
    handler = impl->ec2.get();
  }
  impl->loops = std::make_unique<EventLoops>(options.threads > 0 ? options.threads : std::min(2, UsableCpus()));
  ASSIGN_OR_RETURN(impl->server, HttpServer::Start(*impl->loops, std::move(http), *handler));
  return std::unique_ptr<Devstore>(new Devstore(std::move(impl)));
}

std::string Devstore::url() const {
  return fmt::format("{}://{}", impl_->ca_file.empty() ? "http" : "https",
                     HostAndPort(impl_->host, impl_->server->port()));
}

uint16_t Devstore::port() const {
  return impl_->server->port();
}
const std::string& Devstore::ca_file() const {
  return impl_->ca_file;
}

std::map<std::pair<std::string, int>, uint64_t> Devstore::counters() const {
  return impl_->service->counters();
}

std::vector<uint64_t> Devstore::fault_firings() const {
  return impl_->service->fault_firings();
}

}  // namespace millrace
