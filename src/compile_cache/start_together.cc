#include "compile_cache/start_together.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/file_text.h"
#include "base/number.h"

namespace millrace {

namespace {

using Variable = std::function<std::string(const std::string& name)>;
using Words = std::vector<std::string>;

// Parses "4", or "1:4" as torchrun says a minimum and a maximum.
bool IsSeveral(std::string_view count) {
  if (const size_t colon = count.rfind(':'); colon != std::string_view::npos) count.remove_prefix(colon + 1);
  return ParseNumber<uint64_t>(count).value_or(0) > 1;
}

/// Returns the value of "$NAME" or "${NAME}", also behind "--option=". Other words stay as they are.
std::string Expanded(const std::string& word, const Variable& variable) {
  const size_t dollar = word.find('$');
  if (dollar == std::string::npos || (dollar > 0 && word[dollar - 1] != '=')) return word;
  std::string name = word.substr(dollar + 1);
  if (name.starts_with('{') && name.ends_with('}')) name = name.substr(1, name.size() - 2);
  return word.substr(0, dollar) + variable(name);
}

/// Returns the words of the command. Those that are lines for a shell are taken apart: `sh -c 'torchrun --nnodes 2
/// train.py'`.
Words WordsOf(const Words& command, const Variable& variable) {
  constexpr std::string_view kBetween = " \t\r\n;&|()\"'";
  Words words;
  for (const std::string& word : command) {
    if (word.find_first_of(" \t\r\n") == std::string::npos) {
      words.push_back(word);
      continue;
    }
    for (size_t begin = word.find_first_not_of(kBetween); begin != std::string::npos;) {
      const size_t end = word.find_first_of(kBetween, begin);
      words.push_back(Expanded(word.substr(begin, end - begin), variable));
      begin = word.find_first_not_of(kBetween, end);
    }
  }
  return words;
}

std::string_view NameOf(std::string_view word) {
  return word.substr(word.rfind('/') + 1);
}

bool IsAnyOf(std::string_view word, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, word) != names.end();
}

/// Returns the value of word `i` if it is this option: "--option VALUE" or "--option=VALUE"; else "".
std::string ValueAt(const Words& words, size_t i, std::string_view option) {
  if (words[i] == option) return i + 1 < words.size() ? words[i + 1] : "";
  const bool has = words[i].starts_with(option) && words[i].size() > option.size() && words[i][option.size()] == '=';
  return has ? words[i].substr(option.size() + 1) : "";
}

bool NamesSeveral(const Words& words) {
  bool counts = false;  // behind a launcher that counts processes
  for (size_t i = 0; i < words.size(); ++i) {
    counts |= IsAnyOf(NameOf(words[i]), {"mpirun", "mpiexec", "orterun", "prun", "srun", "horovodrun"});
    for (const char* const option : {"--nnodes", "--num_machines", "--num-machines", "--num_nodes", "--num-nodes"}) {
      if (IsSeveral(ValueAt(words, i, option))) return true;
    }
    for (const char* const option : {"--hostfile", "-hostfile", "--machinefile", "-machinefile"}) {
      if (!ValueAt(words, i, option).empty()) return true;
    }
    if (!counts) continue;
    for (const char* const option : {"-np", "--np", "-n", "-N", "--ntasks", "--nodes"}) {
      if (IsSeveral(ValueAt(words, i, option))) return true;
    }
  }
  return false;
}

/// Returns the file that `accelerate launch` reads: that of --config_file, or the one that `accelerate config` writes.
std::string AccelerateFile(const Words& words, const Variable& variable) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (std::string named = ValueAt(words, i, "--config_file"); !named.empty()) return named;
  }
  std::filesystem::path folder = variable("HF_HOME");
  if (folder.empty()) {
    const std::string cache = variable("XDG_CACHE_HOME");
    folder = (cache.empty() ? std::filesystem::path(variable("HOME")) / ".cache" : std::filesystem::path(cache)) /
             "huggingface";
  }
  return (folder / "accelerate/default_config.yaml").string();
}

bool AccelerateNamesSeveral(const Words& words, const Variable& variable) {
  constexpr size_t kMostBytes = 64 << 10;
  constexpr std::string_view kCount = "num_machines:";
  if (std::ranges::none_of(words, [](const std::string& word) {
        return IsAnyOf(NameOf(word), {"accelerate", "accelerate-launch", "accelerate.commands.launch"});
      }))
    return false;
  const absl::StatusOr<std::string> text = ReadFileText(AccelerateFile(words, variable), kMostBytes);
  if (!text.ok()) return false;
  const size_t line = text->starts_with(kCount) ? 0 : text->find("\n" + std::string(kCount));
  if (line == std::string::npos) return false;
  std::string_view value = std::string_view(*text).substr(text->find(':', line) + 1);
  value = value.substr(0, value.find_first_of("\r\n#"));
  value.remove_prefix(std::min(value.size(), value.find_first_not_of(" '\"")));
  return IsSeveral(value.substr(0, value.find_first_of(" '\"")));
}

}  // namespace

bool HostsStartTogether(const Words& command, const Variable& variable) {
  constexpr const char* kCounts[] = {"SLURM_NNODES",
                                     "SLURM_JOB_NUM_NODES",
                                     "SLURM_NTASKS",
                                     "SLURM_NPROCS",
                                     "OMPI_COMM_WORLD_SIZE",
                                     "PMI_SIZE",
                                     "PET_NNODES",
                                     "NNODES",
                                     "AWS_BATCH_JOB_NUM_NODES",
                                     "MILLRACE_MAIN_HOSTS",
                                     "WORLD_SIZE",
                                     "JAX_PROCESS_COUNT"};
  const Words words = WordsOf(command, variable);
  if (NamesSeveral(words) || AccelerateNamesSeveral(words, variable)) return true;
  if (std::ranges::any_of(kCounts, [&](const char* name) { return IsSeveral(variable(name)); })) return true;
  if (!variable("JOB_COMPLETION_INDEX").empty()) return true;
  const auto hosts = nlohmann::json::parse(variable("SM_HOSTS"), nullptr, /*allow_exceptions=*/false);
  return hosts.is_array() && hosts.size() > 1;
}

}  // namespace millrace
