#include "compile_cache/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/child_process.h"
#include "base/crypto.h"
#include "base/python_child.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kPythonLimit{60};  // a Python on a network file system takes its time
constexpr size_t kKeyBytes = 10;

// The versions of these distributions decide what is compiled.
constexpr const char* kVersionsProgram = R"(
import importlib.metadata, platform
found = [platform.python_implementation().replace("CPython", "Python") + " " + platform.python_version()]
for name in ("torch", "triton", "pytorch-triton", "pytorch-triton-rocm", "torch-xla", "torch-neuronx", "libneuronxla",
             "neuronx-cc", "jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "jax-neuronx", "libtpu"):
    try:
        found.append(name + " " + importlib.metadata.version(name))
    except Exception:
        pass
print(", ".join(found))
)";

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  constexpr size_t kMaxLine = 4096;
  return line.substr(0, kMaxLine);
}

// Returns true for "python", "/venv/bin/python3.11"; not for "python_job.sh".
bool IsPythonName(const std::string& word) {
  constexpr std::string_view kPython = "python";
  const std::string name = fs::path(word).filename().string();
  return name.starts_with(kPython) && std::all_of(name.begin() + kPython.size(), name.end(),
                                                  [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}

std::string FindProgram(const std::string& word) {
  if (word.find('/') != std::string::npos) return word;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::error_code error;
    const fs::path file = fs::path(folder) / word;
    if (fs::is_regular_file(file, error)) return file.string();
  }
  return {};
}

// Returns the Python in "#!/usr/bin/env python3" or "#!/venv/bin/python3.11"; "" if it is no script of Python.
std::string PythonOfScript(const std::string& file) {
  const std::string line = FirstLine(file);
  if (!line.starts_with("#!")) return {};
  std::istringstream words(line.substr(2));
  for (std::string word; words >> word;) {
    if (IsPythonName(word)) return word;
  }
  return {};
}

std::string PythonVersions(const std::string& python) {
  const absl::StatusOr<ChildEnd> end = RunChild(
      {.words = {python, "-c", PythonProgram(kVersionsProgram)}, .limit = std::chrono::milliseconds(kPythonLimit)}, {});
  if (!end.ok() || end->exit_status != 0) return "no Python";
  std::string text = end->output;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// Returns the instruction sets that compilers choose by; other flags change with the kernel.
std::string CpuKind(const std::string& root) {
  constexpr const char* kX86[] = {"sse4_2", "avx",  "avx2", "fma",    "f16c", "bmi1", "bmi2",
                                  "sha_ni", "vaes", "gfni", "avx512", "amx",  "avx_"};
  utsname names{};
  std::string kind = uname(&names) == 0 ? names.machine : "unknown";
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    const bool x86 = line.starts_with("flags");
    if ((!x86 && !line.starts_with("Features")) || colon == std::string::npos) continue;
    std::set<std::string> taken;
    std::istringstream words(line.substr(colon + 1));
    for (std::string word; words >> word;) {
      const bool counts = !x86 || std::any_of(std::begin(kX86), std::end(kX86), [&](std::string_view set) {
        return word == set || ((set == "avx512" || set == "amx" || set == "avx_") && word.starts_with(set));
      });
      if (counts) taken.insert(word);
    }
    return fmt::format("{} {}", kind, fmt::join(taken, " "));
  }
  return kind;
}

std::vector<fs::path> FoldersIn(const std::string& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    found.push_back(at->path());
  }
  return found;
}

// Returns the kinds, each once: compiled code does not depend on how many there are.
std::set<std::string> DeviceKinds(const std::string& root) {
  std::set<std::string> kinds;
  for (const fs::path& gpu : FoldersIn(root + "/proc/driver/nvidia/gpus")) {
    std::ifstream file(gpu / "information");
    for (std::string line; std::getline(file, line);) {
      const size_t begin = line.starts_with("Model:") ? line.find_first_not_of(" \t", 6) : std::string::npos;
      if (begin != std::string::npos) kinds.insert(line.substr(begin));
    }
  }
  for (const fs::path& node : FoldersIn(root + "/sys/class/kfd/kfd/topology/nodes")) {
    std::ifstream file(node / "properties");
    std::string name;
    for (std::string value; file >> name >> value;) {
      if (name == "gfx_target_version" && value != "0") kinds.insert("AMD gfx " + value);
    }
  }
  // The size of an instance ("trn1.32xlarge") changes the number of cores only.
  const std::string product = FirstLine(root + "/sys/devices/virtual/dmi/id/product_name");
  if (product.starts_with("trn") || product.starts_with("inf")) kinds.insert(product.substr(0, product.find('.')));
  return kinds;
}

}  // namespace

std::string CompilerFingerprint::Key() const {
  const Sha256Digest digest = Sha256(AsBytes(about));
  return HexEncode(std::span(digest).first(kKeyBytes));
}

std::string PythonOfCommand(const std::vector<std::string>& command) {
  for (const std::string& word : command) {
    if (IsPythonName(word)) return word;
  }
  if (!command.empty()) {
    if (std::string python = PythonOfScript(FindProgram(command.front())); !python.empty()) return python;
  }
  return "python3";
}

CompilerFingerprint TakeFingerprint(const std::vector<std::string>& command, const std::string& root) {
  CompilerFingerprint found;
  found.about = fmt::format("{}, {}", PythonVersions(PythonOfCommand(command)), CpuKind(root));
  for (const std::string& kind : DeviceKinds(root)) found.about += ", " + kind;
  return found;
}

absl::Status CheckCacheKey(const std::string& key) {
  constexpr size_t kMaxKey = 100;
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_' || c == '+';
  };
  if (!key.empty() && key.size() <= kMaxKey && key.front() != '.' && std::all_of(key.begin(), key.end(), allowed))
    return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "'{}' cannot be a key; use up to {} letters, digits, '.', '-', '_' and '+', for example torch-2.9-h100", key,
      kMaxKey));
}

}  // namespace millrace
