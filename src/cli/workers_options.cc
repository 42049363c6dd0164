#include "cli/workers_options.h"

#include <fmt/format.h>

#include <string_view>

#include "base/number.h"
#include "service/host_list.h"
#include "service/worker_places.h"
#include "service/worker_token.h"

namespace millrace::cli {

void AddWorkersOptions(const Command& command, WorkersFlags* flags) {
  const Option workers = command.Add("--workers", &flags->workers,
                                     "Workers that decode, HOST:PORT,HOST:PORT... (millrace worker), or the place that "
                                     "lists them (docs/service.md). Without a worker, this process decodes");
  const Command with_workers = command.Beside(workers);
  with_workers.Add("--worker-token-file", &flags->token_file, "A file with the secret of the workers");
  const Option tls =
      with_workers.Add("--worker-tls DIR", &flags->tls,
                       "A folder with ca.crt, tls.crt and tls.key, a certificate of the workers' authority");
  command.Add("--worker-tls-name NAME", &flags->tls_name, "The name in the workers' certificates [that of the address]")
      .Needs(tls);
  with_workers
      .Add("--streams", &flags->streams,
           "Parts of each batch that different workers may decode [the number of workers; 16 if they come and go]")
      .Number(1, ServiceOptions::kMaxStreams);
  with_workers.Add(
      "--local-streams N", &flags->local_streams,
      "Parts of each batch that this process decodes beside the workers [0]; auto: all at first, and fewer while "
      "it is slower than the workers");
  with_workers.Add(
      "--worker-compression zstd", &flags->compression,
      "zstd: workers compress batches where that makes them smaller; for rows of tokens over a slow network [none]");
}

absl::StatusOr<std::optional<ServiceOptions>> TakeWorkers(const WorkersFlags& flags) {
  if (flags.workers.empty()) return std::nullopt;
  ServiceOptions options;
  for (const std::string_view place : SplitOutsideBrackets(flags.workers)) {
    options.workers.emplace_back(place);
    const absl::Status is_place = ParseWorkerPlace(place).status();
    if (!is_place.ok()) return Annotate(is_place, "--workers");
  }
  options.streams = flags.streams;
  if (!flags.compression.empty() && flags.compression != "zstd") {
    return absl::InvalidArgumentError(
        fmt::format("--worker-compression: workers compress by zstd only, not by \"{}\"", flags.compression));
  }
  options.compress = !flags.compression.empty();
  options.local_follows = flags.local_streams == "auto";
  if (!options.local_follows) {
    if (!ParseNumber(flags.local_streams, &options.local_streams) ||
        options.local_streams > ServiceOptions::kMaxStreams) {
      return absl::InvalidArgumentError(fmt::format("--local-streams: \"{}\" is neither auto nor a number from 0 to {}",
                                                    flags.local_streams, ServiceOptions::kMaxStreams));
    }
  }
  ASSIGN_OR_RETURN(options.token, ReadWorkerToken(flags.token_file));
  if (!flags.tls.empty()) {
    ASSIGN_OR_RETURN(options.tls, ReadWorkerTls(flags.tls));
    options.tls->name = flags.tls_name;
  }
  return options;
}

}  // namespace millrace::cli
