#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/size.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "dataset/dataset.h"
#include "dataset/index_builder.h"

namespace millrace::cli {

namespace {

struct IndexFlags {
  std::string uri;
  std::string output;
  bool json = false;
};

struct IndexResult {
  IndexSummary summary;
  std::string place;
};

absl::StatusOr<IndexResult> BuildToFile(Runtime& runtime, Stores& stores, const IndexFlags& flags,
                                        const ProgressFn& progress, std::stop_token stop) {
  ASSIGN_OR_RETURN(const Location data, stores.Open(flags.uri));
  ASSIGN_OR_RETURN(const Location output, stores.OpenObject(flags.output));
  PutOptions options;
  options.stop = stop;
  IndexResult result{.summary = {}, .place = output.store->Uri(output.prefix)};
  ASSIGN_OR_RETURN(result.summary,
                   BuildIndex(
                       runtime, data, [&] { return output.store->Write(output.prefix, options); }, progress, stop));
  return result;
}

absl::StatusOr<IndexResult> BuildInPlace(Runtime& runtime, Stores& stores, const IndexFlags& flags,
                                         const ProgressFn& progress, std::stop_token stop) {
  OpenOptions options;
  options.rebuild = true;
  options.progress = progress;
  options.stop = std::move(stop);
  ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset, Dataset::Open(runtime, stores, flags.uri, options));
  const Index& index = dataset->index();
  return IndexResult{.summary = {.samples = index.size(),
                                 .objects = index.objects(),
                                 .span_bytes = index.total_bytes(),
                                 .index_bytes = index.file_bytes(),
                                 .field_names = index.field_names()},
                     .place = dataset->index_uri()};
}

absl::Status RunIndex(const IndexFlags& flags) {
  RETURN_IF_ERROR(CheckUri(flags.uri));
  if (!flags.output.empty()) RETURN_IF_ERROR(CheckObjectUri(flags.output));
  InterruptStop interrupt;
  Runtime runtime;
  Stores stores(runtime);
  const auto start = std::chrono::steady_clock::now();
  IndexResult result;
  {
    ProgressLine line("indexing", ProgressLine::Unit::kBytes);
    const ProgressFn progress = [&line](uint64_t done, uint64_t total) { line.Update(done, total); };
    ASSIGN_OR_RETURN(result, flags.output.empty() ? BuildInPlace(runtime, stores, flags, progress, interrupt.token())
                                                  : BuildToFile(runtime, stores, flags, progress, interrupt.token()));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const IndexSummary& summary = result.summary;
  if (flags.json) {
    const nlohmann::ordered_json line{{"samples", summary.samples},  {"objects", summary.objects},
                                      {"bytes", summary.span_bytes}, {"fields", summary.field_names},
                                      {"index", result.place},       {"index_bytes", summary.index_bytes},
                                      {"seconds", seconds}};
    return WriteStdout(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n');
  }
  return WriteStdout(
      fmt::format("{} samples in {} objects, {}, fields: {}\n{}: {}, {:.1f} bytes a sample, built in {:.1f} s\n",
                  summary.samples, summary.objects, FormatSize(summary.span_bytes),
                  fmt::join(summary.field_names, ", "), result.place, FormatSize(summary.index_bytes),
                  static_cast<double>(summary.index_bytes) / static_cast<double>(summary.samples), seconds));
}

}  // namespace

void AddIndex(CLI::App& app, Action* run) {
  CLI::App* index = app.add_subcommand("index", "Build the index of a data set anew");
  auto flags = std::make_shared<IndexFlags>();
  index
      ->add_option("uri", flags->uri,
                   "A folder or prefix with shards (*.tar, *.tfrecord, *.rec, *.mds) or raw objects (class/name.jpg)")
      ->required();
  index->add_option("--output", flags->output, "Write the index to this object instead of to where it will be found");
  index->add_flag("--json", flags->json,
                  R"(One JSON object: {"samples", "objects", "bytes", "fields", "index", "index_bytes", "seconds"})");
  index->footer(
      "The index says which samples there are and where they lie, with a checksum of each. Reading a data set for the "
      "first time\n"
      "builds it; run this after the data have changed. It is kept beside the data (.millrace/index) or, where these "
      "cannot be\n"
      "written to, in the cache folder (MILLRACE_CACHE, by default ~/.cache/millrace).\n\n"
      "Examples:\n"
      "  millrace index s3://bucket/train\n"
      "  millrace index /data/train --json");
  index->callback([flags, run] {
    *run = [flags] {
      const absl::Status status = RunIndex(*flags);
      return status.ok() ? 0 : Fail("index", status);
    };
  });
}

}  // namespace millrace::cli
