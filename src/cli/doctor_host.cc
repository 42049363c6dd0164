#include "cli/doctor_host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/process.h"
#include "base/python_child.h"
#include "cli/console.h"
#include "cli/usage.h"
#include "diagnose/host_doctor.h"
#include "store/uri.h"

namespace millrace::cli {

namespace {

struct HostFlags {
  std::string uri;
  HostDoctorOptions options{.python = DefaultPython()};
  std::string min_free = "1GiB";
  bool json = false;
};

// Returns the rank that torchrun, MPI or Slurm gives; nullopt if this process is not one of several ranks.
std::optional<int> LocalRank() {
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    if (const std::string value = EnvironmentValue(name); !value.empty()) return std::atoi(value.c_str());
  }
  return std::nullopt;
}

absl::StatusOr<HostDoctorOptions> TakeHostOptions(const HostFlags& flags) {
  HostDoctorOptions options = flags.options;
  if (!flags.uri.empty()) {
    ASSIGN_OR_RETURN(const ParsedUri uri, AsUsage(ParseUri(flags.uri)));
    if (uri.scheme != ParsedUri::Scheme::kS3) {
      return UsageError("'{}' is not on S3; write s3://bucket/prefix, or --disk for a folder", flags.uri);
    }
    options.bucket = uri.store;
    options.key = uri.path;
  }
  for (const auto& [name, value] : {std::pair("--min-memory-gbps", options.min_memory_gbps),
                                    {"--min-disk-mbps", options.min_disk_mbps},
                                    {"--min-store-mbps", options.min_store_mbps},
                                    {"--min-bus-gbps", options.min_bus_gbps}}) {
    if (!(value >= 0)) return UsageError("{} must not be negative", name);
  }
  ASSIGN_OR_RETURN(options.min_free_bytes, TakeSize("--min-free", flags.min_free));
  if (options.node.empty()) options.node = HostName();
  return options;
}

std::string ToJson(const HostDoctor& doctor, const std::string& node) {
  JsonObject figures;
  for (const auto& [name, value] : doctor.figures()) figures.Add(name, value);
  return JSON_OF(Named("ok", doctor.healthy()), node, Named("checks", ChecksToJson(doctor.checks())), figures)
      .Versioned("doctor.host");
}

// Returns true if this machine, and the others, are fit.
absl::StatusOr<bool> ExamineHost(const HostFlags& flags) {
  ASSIGN_OR_RETURN(HostDoctorOptions options, TakeHostOptions(flags));
  const std::optional<int> local_rank = LocalRank();
  // The default is a guess; a job of several ranks cannot do without.
  options.needs_python = options.python != HostFlags().options.python || local_rank.has_value();
  const std::string node = options.node;
  const InterruptStop interrupt;
  // One of several ranks prints all findings. It is known only at the end which one.
  absl::Status printed;
  const auto print = [&](const HealthCheck& check) {
    if (!flags.json && !local_rank) printed.Update(WriteStdout(CheckText(check)));
  };
  HostDoctor doctor(std::move(options), local_rank.value_or(0), print);
  RETURN_IF_ERROR(doctor.Examine(interrupt.token()));
  if (flags.json && !doctor.silent()) printed = WriteStdout(ToJson(doctor, node));
  if (!flags.json && local_rank && !doctor.silent()) {
    for (const HealthCheck& check : doctor.checks()) printed.Update(WriteStdout(CheckText(check)));
  }
  RETURN_IF_ERROR(printed);
  return doctor.healthy();
}

constexpr const char* kHostFooter =
    R"(One line for each step: memory, disk, store (settings, name, connection, TLS, clock, permissions, speed), devices. If torchrun,
srun or mpirun starts it once for each rank, rank 0 reports on all nodes. It says which node is slow or at fault, and which pairs
of nodes cannot talk to each other or do so slowly. It shows the bus bandwidth of an all-reduce over gloo and NCCL. It takes less than a minute. The exit
status is 1, on all ranks, if something fails.

These are faults: wrong bytes or wrong products of matrices, a store or node that cannot be reached, and too little free space. A
clock is at fault if S3 refuses it, or if it is a minute off those of the other nodes. A figure is a fault if it is below its
--min-.... If there are three nodes or more, a figure of a node below a third of the median is one, too. Everything else is reported as a figure.

Examples:
  millrace doctor host
  millrace doctor host s3://bucket/train --disk /mnt/nvme --min-memory-gbps 50 --json
  srun --ntasks-per-node 1 millrace doctor host s3://bucket/train
  torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint node-0:29500 --no-python millrace doctor host)";

}  // namespace

absl::StatusOr<bool> ExamineThisHost(bool json) {
  HostFlags flags;
  flags.json = json;
  return ExamineHost(flags);
}

void AddDoctorHost(Command doctor) {
  const Command host =
      doctor.AddOptionalCommand("host", "Say whether this machine, and those of its job, are fit to train");
  auto flags = std::make_shared<HostFlags>();
  host.Add("uri", &flags->uri, "s3://bucket, a prefix or an object: the store that is going to be read");
  host.AddShown("--disk DIR", &flags->options.folder, "A folder on the disk that is measured");
  host.Add("--node NAME", &flags->options.node, "The name of this machine in reports, instead of its host name");
  host.AddShown("--python", &flags->options.python,
                "The Python that trains, with torch and millrace; '': leaves the devices out");
  host.AddShown("--min-free", &flags->min_free, "Space on the disk that must be free");
  host.Add("--min-memory-gbps", &flags->options.min_memory_gbps, "GB/s that copies in memory must reach");
  host.Add("--min-disk-mbps", &flags->options.min_disk_mbps, "MB/s that the disk must write and read");
  host.Add("--min-store-mbps", &flags->options.min_store_mbps, "MB/s that the store must deliver");
  host.Add("--min-bus-gbps", &flags->options.min_bus_gbps, "GB/s that collectives must reach (bus bandwidth)");
  host.AddFlag("--json", &flags->json,
               R"(One JSON object: {"ok", "node", "checks": [{"name", "result", "text", "remedy"}], "figures"})");
  host.Footer(kHostFooter);
  host.Run([flags] { return ExitStatus("doctor", ExamineHost(*flags)); });
}

}  // namespace millrace::cli
