#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/child_process.h"
#include "base/interrupt.h"
#include "base/python_child.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "diagnose/machine.h"
#include "transfer/artifact.h"

namespace millrace::cli {

namespace {

struct EnvFlags {
  bool json = false;
  std::string python = DefaultPython();
};

/// Represents a name and what is found under it, in the order of the report.
using Facts = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kNone = "none";

// These are the packages that Millrace meets in training programs.
constexpr const char* kPackages = R"(
import importlib.metadata, platform
found = ["Python " + platform.python_version()]
for name in ("millrace-data", "torch", "torchvision", "numpy", "jax", "torch-xla", "torch-neuronx", "tensorflow",
             "lightning", "pytorch-lightning", "transformers", "accelerate", "ray", "pyarrow", "fsspec"):
    try:
        found.append(name + " " + importlib.metadata.version(name))
    except Exception:
        pass
print(", ".join(found))
)";

std::string PythonPackages(const std::string& python, const std::stop_token& stop) {
  constexpr std::chrono::seconds kLimit{20};
  const absl::StatusOr<ChildEnd> end =
      RunChild({.words = {python, "-c", PythonProgram(kPackages)}, .limit = kLimit}, stop);
  if (!end.ok()) return fmt::format("{}: the command {}", python, ToStd(end.status().message()));
  if (end->exit_status != 0) return fmt::format("{}: ended with status {}", python, end->exit_status);
  return end->output.substr(0, end->output.find('\n'));
}

// Returns "Debian GNU/Linux 12 (bookworm)".
std::string SystemName() {
  constexpr std::string_view kBegin = "PRETTY_NAME=";
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kBegin)) continue;
    line.erase(0, kBegin.size());
    std::erase(line, '"');
    return line;
  }
  return "unknown";
}

// "glibc 2.36".
std::string LibraryName() {
  std::array<char, 64> name{};
  return confstr(_CS_GNU_LIBC_VERSION, name.data(), name.size()) == 0 ? "unknown" : name.data();
}

std::string CacheFolderText() {
  const std::string folder = DefaultCacheFolder();
  if (folder.empty()) return kNone;
  // The folder may not exist yet: then the disk is that of the nearest folder above it.
  std::error_code error;
  std::filesystem::path place = folder;
  while (!std::filesystem::exists(place, error) && place.has_parent_path() && place != place.parent_path()) {
    place = place.parent_path();
  }
  const std::filesystem::space_info space = std::filesystem::space(place, error);
  return error ? folder : fmt::format("{}, {} free", folder, FormatSize(space.available));
}

bool HasName(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Values that cannot hold a secret are shown; of the others only that they are set.
bool IsHarmless(std::string_view name) {
  constexpr std::string_view kHarmless =
      " AWS_REGION AWS_DEFAULT_REGION AWS_MAX_ATTEMPTS AWS_USE_DUALSTACK_ENDPOINT AWS_USE_FIPS_ENDPOINT "
      "AWS_EC2_METADATA_DISABLED AWS_REQUEST_CHECKSUM_CALCULATION AWS_RESPONSE_CHECKSUM_VALIDATION MILLRACE_LOG "
      "MILLRACE_PROGRESS MILLRACE_CACHE MILLRACE_S3_ANONYMOUS MILLRACE_S3_ADDRESSING_STYLE "
      "MILLRACE_S3_CHECKSUM_ALGORITHM MILLRACE_S3_SSE MILLRACE_S3_REQUESTER_PAYS MILLRACE_ATTEMPT RANK LOCAL_RANK "
      "WORLD_SIZE LOCAL_WORLD_SIZE SLURM_PROCID SLURM_LOCALID SLURM_NTASKS SLURM_NNODES OMPI_COMM_WORLD_RANK "
      "OMPI_COMM_WORLD_SIZE ";
  return kHarmless.find(fmt::format(" {} ", name)) != std::string_view::npos;
}

Facts Variables() {
  Facts facts;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const size_t end = variable.find('=');
    if (end == std::string_view::npos) continue;
    const std::string name(variable.substr(0, end));
    const bool known = IsHarmless(name) || HasName(name, {"AWS_", "MILLRACE_", "SSL_CERT_"}) ||
                       name.ends_with("_PROXY") || name.ends_with("_proxy");
    if (known) facts.emplace_back(name, IsHarmless(name) ? std::string(variable.substr(end + 1)) : "(set)");
  }
  std::sort(facts.begin(), facts.end());
  return facts;
}

Facts Found(const EnvFlags& flags, const std::stop_token& stop) {
  const MachineDescription machine = DescribeMachine();
  std::error_code error;
  return {{"millrace", fmt::format("{}, compiled by {}", MILLRACE_VERSION, machine.compiler)},
          {"program", std::filesystem::read_symlink("/proc/self/exe", error).string()},
          {"system", SystemName()},
          {"kernel", machine.kernel},
          {"libc", LibraryName()},
          {"processor", fmt::format("{}, {} usable", machine.cpu, machine.cpus)},
          {"memory", fmt::format("{} usable", FormatSize(machine.memory_bytes))},
          {"gpus", machine.gpus.empty() ? kNone : fmt::format("{}", fmt::join(machine.gpus, ", "))},
          {"fuse", access("/dev/fuse", R_OK | W_OK) == 0 ? "usable" : "/dev/fuse cannot be opened: no mounts"},
          {"cache", CacheFolderText()},
          {"python", PythonPackages(flags.python, stop)}};
}

absl::Status Print(const EnvFlags& flags) {
  const InterruptStop interrupt;
  const Facts facts = Found(flags, interrupt.token());
  if (interrupt.token().stop_requested()) return absl::CancelledError("interrupted");
  const Facts variables = Variables();
  if (flags.json) {
    JsonObject json;
    for (const auto& [name, value] : facts) json.Add(name, value);
    JsonObject set;
    for (const auto& [name, value] : variables) set.Add(name, value);
    return WriteStdout(json.Add("variables", set).Versioned("env"));
  }
  std::string text;
  for (const auto& [name, value] : facts) text += Printable(fmt::format("{:<10} {}", name, value)) + '\n';
  for (const auto& [name, value] : variables)
    text += Printable(fmt::format("{:<10} {}={}", "variable", name, value)) + '\n';
  return WriteStdout(text);
}

constexpr const char* kEnvFooter =
    R"(A bug report needs these facts. Nothing is measured and no store is asked. Keys, tokens, endpoints and proxies are not
shown: such variables are only named.

Examples:
  millrace env
  millrace env --python /venv/bin/python --json)";

}  // namespace

void AddEnv(Command app) {
  const Command env = app.AddCommand("env", "Print versions, machine and settings, for a bug report");
  auto flags = std::make_shared<EnvFlags>();
  env.AddShown("--python PYTHON", &flags->python, "The Python whose packages are listed");
  env.AddFlag("--json", &flags->json,
              R"(One JSON object: {"millrace", "program", "system", "kernel", "libc", "processor", "memory", "gpus", )"
              R"("fuse", "cache", "python", "variables"})");
  env.Footer(kEnvFooter);
  env.Run([flags] { return ExitStatus("env", Print(*flags)); });
}

}  // namespace millrace::cli
