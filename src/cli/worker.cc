#include "service/worker.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/cache_option.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/metrics_option.h"
#include "cli/usage.h"
#include "service/worker_calls.h"
#include "service/worker_tls.h"
#include "service/worker_token.h"
#include "store/request_counts.h"
#include "store/stores.h"

namespace millrace::cli {

namespace {

constexpr const char* kWorkerFooter =
    R"(A worker decodes for trainers on other machines, or beside it: `millrace feed --workers`, and millrace.Loader with
workers=[...]. It keeps no state: kill it at any time, and trainers continue without it, with the same batches in the same order.

Everybody who reaches a worker reads with its credentials. On an address that other machines reach, it reads only below the
URIs of --allow. There it asks trainers for a certificate of its own authority, or for a secret. The folder of
--tls has the files ca.crt, tls.crt and tls.key. The file of --token-file has the secret; trainers use the same file. Without
--tls neither the secret nor the batches are encrypted: keep worker and trainers in a network of your own.

Examples:
  millrace worker --listen 127.0.0.1:7070
  millrace worker --listen 0.0.0.0:7070 --token-file /etc/millrace/token --allow s3://bucket/train
  millrace worker --listen 0.0.0.0:7070 --tls /etc/millrace/tls --allow s3://bucket/train
  millrace feed s3://bucket/train --workers 10.0.0.1:7070,10.0.0.2:7070 --worker-token-file /etc/millrace/token)";

struct WorkerFlags {
  std::string listen = "127.0.0.1:7070";
  std::string token_file;
  std::string tls;
  WorkerOptions options;
  std::string keep_decoded;
  RuntimeOptions runtime{.io_threads = 2};
  std::string memory;
  CacheOption cache;
  std::string metrics_port;
};

absl::Status Serve(const WorkerFlags& flags) {
  // Port 0, for any free one, is no address of a worker; it is one to listen on.
  const absl::StatusOr<HttpEndpoint> address = ParseWorkerAddress(flags.listen);
  if (!address.ok()) return AsUsage(Annotate(address.status(), "--listen"));
  WorkerOptions options = flags.options;
  options.host = address->host;
  options.port = address->port;
  for (const std::string& uri : options.allow) RETURN_IF_ERROR(CheckUri(uri));
  if (!flags.keep_decoded.empty()) {
    ASSIGN_OR_RETURN(options.kept_bytes, TakeSizeOrZero("--keep-decoded", flags.keep_decoded));
  }
  ASSIGN_OR_RETURN(options.token, ReadWorkerToken(flags.token_file));
  if (!flags.tls.empty()) {
    ASSIGN_OR_RETURN(options.tls, ReadWorkerTls(flags.tls));
  }
  RuntimeOptions runtime_options = flags.runtime;
  if (!flags.memory.empty()) {
    ASSIGN_OR_RETURN(runtime_options.memory_bytes, TakeSizeOrZero("--memory", flags.memory));
  }
  ASSIGN_OR_RETURN(const std::optional<RangeCacheOptions> cache, flags.cache.Take());
  ASSIGN_OR_RETURN(const std::optional<MetricsAddress> metrics_address, TakeMetricsPort(flags.metrics_port));
  const StopSignals signals;
  Runtime runtime(runtime_options);
  StoreCounts requests;
  Stores stores(runtime, requests.Watch());
  WorkerOptions with_cache = options;  // which is gone before the runtime
  ASSIGN_OR_RETURN(with_cache.cache, RangeCache::Open(cache, runtime.memory()));
  absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Start(runtime, stores, with_cache);
  if (absl::IsInvalidArgument(worker.status())) return AsUsage(worker.status());  // there are only options
  RETURN_IF_ERROR(worker.status());
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricsServer> metrics, ServeMetrics(metrics_address, [&](MetricsText* text) {
                     CollectProcess(text);
                     CollectMemory(runtime.memory(), text);
                     requests.Collect(text);
                     CollectWorker((*worker)->counts(), text);
                   }));
  const std::string listening = HostAndPort(address->host, (*worker)->port());
  RETURN_IF_ERROR(WriteStdout(fmt::format("listening on {}\n", listening)));
  signals.Wait();
  return absl::OkStatus();
}

}  // namespace

void AddWorker(Command app) {
  const Command command = app.AddCommand("worker", "Decode for trainers: `millrace feed --workers`, Loader(workers=)");
  auto flags = std::make_shared<WorkerFlags>();
  command.AddShown("--listen", &flags->listen, "HOST:PORT to listen on; port 0: any free one");
  command.Add(
      "--token-file", &flags->token_file,
      "A file with the secret that trainers must have; it or --tls is needed unless only this machine reaches HOST");
  command.Add("--tls DIR", &flags->tls,
              "A folder with ca.crt, tls.crt and tls.key: trainers must have a certificate of the same authority");
  command.Add("--allow", &flags->options.allow,
              "Read only below this URI; may be repeated [everywhere, if HOST is this machine]");
  command.Add(
      "--keep-decoded SIZE", &flags->keep_decoded,
      "Memory, beside --memory, for decoded batches of loaders that neither shuffle nor augment, so that they are "
      "decoded once and not in each epoch [none]");
  command.Add("--threads", &flags->runtime.cpu_threads, "CPU threads that decode [all CPUs]").Number(0, 1024);
  command.AddShown("--io-threads", &flags->runtime.io_threads, "Network threads").Number(1, 64);
  command.Add("--memory", &flags->memory, "Budget of all streams together [half of the machine's]");
  flags->cache.AddTo(
      command,
      "Keep bytes that are read in this folder, or in memory (part of --memory), for later epochs and other trainers");
  AddMetricsPort(command, &flags->metrics_port);
  command.Footer(kWorkerFooter);
  command.Run([flags] { return ExitStatus("worker", Serve(*flags)); });
}

}  // namespace millrace::cli
