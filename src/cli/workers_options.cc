#include "cli/workers_options.h"

#include <string_view>

#include "service/host_list.h"
#include "service/worker_places.h"
#include "service/worker_token.h"

namespace millrace::cli {

void AddWorkersOptions(const Command& command, WorkersFlags* flags) {
  const Option workers = command.Add("--workers", &flags->workers,
                                     "Workers that decode, HOST:PORT,HOST:PORT... (millrace worker), or where they are "
                                     "to be found (docs/service.md); without one, this process goes on");
  command.Add("--worker-token-file", &flags->token_file, "A file with the secret of the workers").Needs(workers);
  const Option tls = command
                         .Add("--worker-tls", &flags->tls,
                              "A folder with ca.crt, tls.crt and tls.key, a certificate of the workers' authority")
                         .Called("DIR")
                         .Needs(workers);
  command.Add("--worker-tls-name", &flags->tls_name, "The name in the workers' certificates [that of the address]")
      .Called("NAME")
      .Needs(tls);
  command
      .Add("--streams", &flags->streams,
           "Parts of each batch that different workers may decode [as many as there are workers; 16 where they come "
           "and go]")
      .Needs(workers)
      .Number(1, ServiceOptions::kMaxStreams);
  command
      .Add("--local-streams", &flags->local_streams,
           "Parts of each batch that this process decodes beside the workers [0]")
      .Needs(workers)
      .Number(0, ServiceOptions::kMaxStreams);
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
  options.local_streams = flags.local_streams;
  ASSIGN_OR_RETURN(options.token, ReadWorkerToken(flags.token_file));
  if (!flags.tls.empty()) {
    ASSIGN_OR_RETURN(options.tls, ReadWorkerTls(flags.tls));
    options.tls->name = flags.tls_name;
  }
  return options;
}

}  // namespace millrace::cli
