#include "diagnose/doctor.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/doctor_host.h"
#include "cli/json_text.h"
#include "store/uri.h"

namespace millrace::cli {

namespace {

struct DoctorFlags {
  std::string uri;
  bool json = false;
  bool write = false;
};

}  // namespace

std::string CheckText(const HealthCheck& check) {
  constexpr const char* kWords[] = {"ok", "FAILED", "-"};
  std::string line = fmt::format("{:<6} {}: {}", kWords[static_cast<int>(check.result)], check.name, check.text);
  if (!check.remedy.empty()) line += fmt::format(". Remedy: {}", check.remedy);
  return Printable(line) + '\n';
}

JsonArray ChecksToJson(const std::vector<HealthCheck>& found) {
  JsonArray checks;
  for (const HealthCheck& check : found) {
    constexpr const char* kWords[] = {"ok", "failed", "skipped"};
    checks.Add(JSON_OF(check.name, Named("result", kWords[static_cast<int>(check.result)]), check.text, check.remedy));
  }
  return checks;
}

namespace {

std::string ToJson(const Diagnosis& found) {
  JsonObject json{{"ok", found.healthy()}, {"checks", ChecksToJson(found.checks)}};
  if (found.speed) {
    json.Add("first_byte_ms", JsonObject{{"median", found.speed->first_byte_median_ms},
                                         {"p99", found.speed->first_byte_p99_ms},
                                         {"reads", found.speed->reads}});
  }
  if (found.speed && found.speed->has_rates) {
    json.Add("bytes_per_second", JsonObject{{"one", found.speed->one_bytes_per_second},
                                            {"many", found.speed->many_bytes_per_second},
                                            {"connections", kManyConnections}});
  }
  return json.Add("advice", found.advice).Versioned("doctor");
}

// Returns true if all went well.
absl::StatusOr<bool> Examine(const DoctorFlags& flags, const ParsedUri& uri) {
  absl::Status printed;
  const auto print = [&](const std::string& text) {
    if (!flags.json) printed.Update(WriteStdout(text));
  };
  std::optional<ProgressLine> line;
  Doctor doctor(uri.store, uri.path, [&](const HealthCheck& check) {
    if (line) line->Clear();
    print(CheckText(check));
  });
  doctor.CheckAccess();
  if (flags.write) doctor.CheckWrite();
  line.emplace("measuring", ProgressLine::Unit::kBytes);
  doctor.MeasureSpeed([&line](uint64_t bytes) { line->Update(bytes, 0); });
  line.reset();
  const Diagnosis& found = doctor.diagnosis();
  for (const std::string& sentence : found.advice) print(fmt::format("advice: {}\n", sentence));
  if (flags.json) printed = WriteStdout(ToJson(found));
  RETURN_IF_ERROR(printed);
  return found.healthy();
}

void AddOptions(Command command, DoctorFlags* flags) {
  command.Add("uri", &flags->uri, "s3://bucket, a prefix or an object");
  command.AddFlag("--write", &flags->write,
                  "Also write a small object there and remove it, as saving a checkpoint would");
  command.AddFlag("--json", &flags->json,
                  R"(One JSON object: {"ok", "checks": [{"name", "result", "text", "remedy"}], "first_byte_ms", )"
                  R"("bytes_per_second" (of objects of 1 MiB and more), "advice"})");
}

constexpr const char* kDoctorHelp =
    "One line for each step: settings, name, connection, TLS, clock, permissions. A step that fails comes with its "
    "remedy. Then it reads objects for some seconds, half a GiB at most. Nothing is changed without --write. Secrets "
    "are never shown. The exit status is 1 if something fails. Without a URI, this machine is examined, as `millrace "
    "doctor host` does.\n\n"
    "Examples:\n"
    "  millrace doctor\n"
    "  millrace doctor s3://bucket/train/\n"
    "  millrace doctor s3://bucket/checkpoints/ --write\n"
    "  millrace doctor s3://bucket/train/shard-000000.tar --profile lab --json | jq .checks\n"
    "  millrace doctor host s3://bucket/train";

// Without a URI: `doctor` is about this machine, as right after an installation; `doctor s3` lacks its store.
void RunDoctor(Command command, const std::shared_ptr<DoctorFlags>& flags, bool needs_uri) {
  command.Run([flags, needs_uri] {
    if (!needs_uri && flags->uri.empty() && !flags->write) return ExitStatus("doctor", ExamineThisHost(flags->json));
    absl::StatusOr<ParsedUri> uri = ParseUri(flags->uri);
    if (flags->uri.empty()) uri = absl::InvalidArgumentError("a URI is missing; write s3://bucket/prefix");
    if (uri.ok() && uri->scheme != ParsedUri::Scheme::kS3) {
      uri = absl::InvalidArgumentError(fmt::format("'{}' is not on S3; write s3://bucket/prefix", flags->uri));
    }
    if (!uri.ok()) return Fail("doctor", AsUsage(uri.status()));
    return ExitStatus("doctor", Examine(*flags, *uri));
  });
}

}  // namespace

void AddDoctor(Command app) {
  const Command doctor =
      app.AddCommand("doctor", "Say why a store cannot be read, or whether a machine is fit to train");
  // The longer form came first; scripts use it.
  const Command s3 = doctor.AddOptionalCommand("s3", "The same: `millrace doctor s3 s3://bucket`");
  AddDoctorHost(doctor);
  auto flags = std::make_shared<DoctorFlags>();
  for (const Command& command : {doctor, s3}) {
    AddOptions(command, flags.get());
    command.Footer(kDoctorHelp);
  }
  RunDoctor(doctor, flags, /*needs_uri=*/false);
  RunDoctor(s3, flags, /*needs_uri=*/true);
}

}  // namespace millrace::cli
