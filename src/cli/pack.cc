#include "pack/pack.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/size.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "dataset/dataset.h"

namespace millrace::cli {

namespace {

struct PackFlags {
  std::string source;
  std::string destination;
  std::string shard_size = "256MiB";
  bool force = false;
  bool json = false;
};

absl::StatusOr<PackReport> PackAll(const PackFlags& flags, const PackOptions& chosen) {
  InterruptStop interrupt;
  PackOptions options = chosen;
  options.stop = interrupt.token();
  Runtime runtime;
  Stores stores(runtime);
  ASSIGN_OR_RETURN(const Location from, stores.Open(flags.source));
  ASSIGN_OR_RETURN(const Location to, stores.Open(flags.destination));
  RETURN_IF_ERROR(AsUsage(CheckApart(from, to)));
  OpenOptions open;
  open.stop = interrupt.token();
  ProgressLine indexing("indexing", ProgressLine::Unit::kBytes);
  open.progress = [&indexing](uint64_t done, uint64_t total) { indexing.Update(done, total); };
  ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> source, Dataset::Open(runtime, stores, flags.source, open));
  ProgressLine packing("packing", ProgressLine::Unit::kBytes);
  options.progress = [&packing](uint64_t done, uint64_t total) { packing.Update(done, total); };
  absl::StatusOr<PackReport> report = Pack(runtime, stores, *source, flags.destination, options);
  if (!absl::IsCancelled(report.status())) return report;
  return absl::CancelledError(
      fmt::format("interrupted; {} is not complete: pack it again with --force", flags.destination));
}

absl::Status RunPack(const PackFlags& flags) {
  PackOptions options;
  const absl::StatusOr<uint64_t> shard_bytes = ParseSize(flags.shard_size);
  if (!shard_bytes.ok() || *shard_bytes == 0) {
    return AsUsage(Annotate(shard_bytes.ok() ? absl::InvalidArgumentError("it must be positive") : shard_bytes.status(),
                            "--shard-size"));
  }
  RETURN_IF_ERROR(CheckUri(flags.source));
  RETURN_IF_ERROR(CheckUri(flags.destination));
  options.shard_bytes = *shard_bytes;
  options.force = flags.force;
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const PackReport report, PackAll(flags, options));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (report.without_image > 0 && report.without_image < report.samples) {
    fmt::print(
        stderr,
        "millrace pack: warning: {} of {} samples have no image (jpg, jpeg or png), the first of them '{}': feed "
        "will refuse them; remove or move their files, and pack again with --force\n",
        report.without_image, report.samples, report.first_without_image);
  }
  if (flags.json) {
    const nlohmann::ordered_json line{{"samples", report.samples},
                                      {"shards", report.shards},
                                      {"bytes", report.shard_bytes},
                                      {"index_bytes", report.index_bytes},
                                      {"seconds", seconds}};
    return WriteStdout(line.dump() + '\n');
  }
  return WriteStdout(fmt::format(
      "packed {} samples into {} shard{}, {}, in {:.1f} s ({}/s)\n", report.samples, report.shards,
      report.shards == 1 ? "" : "s", FormatSize(report.shard_bytes), seconds,
      FormatSize(static_cast<uint64_t>(static_cast<double>(report.shard_bytes) / std::max(seconds, 1e-3)))));
}

}  // namespace

void AddPack(CLI::App& app, Action* run) {
  CLI::App* pack = app.add_subcommand("pack", "Write a data set as tar shards (WebDataset)");
  auto flags = std::make_shared<PackFlags>();
  pack->add_option("source", flags->source,
                   "A folder or prefix with raw objects (class/name.jpg) or tar shards (*.tar)")
      ->required();
  pack->add_option("destination", flags->destination, "An empty folder or prefix: gets shard-000000.tar and so on")
      ->required();
  pack->add_option("--shard-size", flags->shard_size, "No shard gets larger, unless one sample is")
      ->capture_default_str();
  pack->add_flag("--force", flags->force, "Replace the shards of an earlier pack at the destination");
  pack->add_flag("--json", flags->json, R"(One JSON object: {"samples", "shards", "bytes", "index_bytes", "seconds"})");
  pack->footer(
      "Samples keep their order, keys, fields and bytes. The class folder of raw objects becomes the field 'cls', its "
      "number among the\n"
      "folders. The shards come with their index. The same source gives the same bytes.\n\n"
      "Examples:\n"
      "  millrace pack /data/images s3://bucket/train --shard-size 256MiB\n"
      "  millrace pack s3://bucket/small-shards s3://bucket/large-shards --shard-size 1GiB");
  pack->callback([flags, run] {
    *run = [flags] {
      const absl::Status status = RunPack(*flags);
      return status.ok() ? 0 : Fail("pack", status);
    };
  });
}

}  // namespace millrace::cli
