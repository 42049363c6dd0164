#include "channel/user_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "base/shell_word.h"
#include "base/utf8.h"
#include "channel/python_json.h"

namespace millrace {

namespace {

/// Writes a value in the toolkit's own form for a command line.
std::string ArgumentText(const std::string& text) {
  const std::optional<PythonJson> value = ParsePythonJson(text);
  if (!value) return text;
  if (value->is_null()) return "";
  if (!value->is_object()) return PythonText(*value);
  std::vector<std::pair<std::string, std::string>> members;
  for (const auto& [key, item] : value->items()) members.emplace_back(key, PythonText(item));
  std::ranges::sort(members);
  std::string joined;
  for (const auto& [key, item] : members) joined += fmt::format("{}{}={}", joined.empty() ? "" : ",", key, item);
  return joined;
}

// ---- Commands that take them

std::string_view BaseName(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

bool IsPython(std::string_view word) {
  const std::string_view name = BaseName(word);
  if (!name.starts_with("python") && !name.starts_with("pypy")) return false;
  return name.substr(name.starts_with("python") ? 6 : 4).find_first_not_of("0123456789.t") == std::string_view::npos;
}

bool IsShell(std::string_view word) {
  constexpr std::array<std::string_view, 6> kShells = {"sh", "bash", "dash", "ksh", "zsh", "ash"};
  return std::ranges::find(kShells, BaseName(word)) != kShells.end();
}

/// Returns true for launchers whose -m, as that of Python, names a module.
bool IsModuleLauncher(std::string_view word) {
  constexpr std::array<std::string_view, 3> kLaunchers = {"torchrun", "accelerate", "deepspeed"};
  return std::ranges::find(kLaunchers, BaseName(word)) != kLaunchers.end();
}

/// Returns true for programs that run the words behind their options, the first of which may be a script.
bool RunsOthers(std::string_view word) {
  constexpr std::array<std::string_view, 30> kNames = {
      "accelerate", "colossalai", "command",  "composer", "deepspeed", "env",    "exec", "horovodrun",
      "ionice",     "mpiexec",    "mpirun",   "ncu",      "nice",      "nohup",  "nsys", "numactl",
      "poetry",     "prun",       "setsid",   "srun",     "stdbuf",    "strace", "sudo", "taskset",
      "time",       "timeout",    "torchrun", "uv",       "xvfb-run",  "tini"};
  return std::ranges::find(kNames, BaseName(word)) != kNames.end();
}

bool IsScript(std::string_view word) {
  return !word.starts_with('-') && word.ends_with(".py");
}

bool IsProgram(std::string_view word, const std::string& program) {
  return !program.empty() && (word == program || word.ends_with("/" + program));
}

/// Recognizes `A=b`, as shells have it before a command.
bool IsAssignment(std::string_view word) {
  const size_t end = word.find('=');
  return end != 0 && end != std::string_view::npos &&
         std::ranges::all_of(word.substr(0, end), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

/// Returns the number of the shell that a command runs, perhaps below others (env, srun); that of its words if it runs
/// none. Words behind a script belong to that.
size_t FindShell(const std::vector<std::string>& words, const std::string& program) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (IsShell(words[i])) return i;
    if (IsPython(words[i]) || IsScript(words[i]) || IsProgram(words[i], program)) break;
  }
  return words.size();
}

/// Returns the number of the word that is the text (-c) of the shell `words[shell]`; nullopt if there is no text.
std::optional<size_t> FindText(const std::vector<std::string>& words, size_t shell) {
  bool has_text = false;
  for (size_t i = shell + 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool is_option = word.size() > 1 && (word.front() == '-' || word.front() == '+');
    if (!is_option) return has_text ? std::optional(i) : std::nullopt;
    if (word.starts_with("--")) {
      if (word == "--rcfile" || word == "--init-file") ++i;
      continue;
    }
    has_text = has_text || (word.front() == '-' && word.find('c') != std::string::npos);
    if (word.back() == 'o' || word.back() == 'O') ++i;  // -o pipefail
  }
  return std::nullopt;
}

/// Returns true if Python, with these words behind it, runs a script or a module, and not text (-c) or its input.
bool PythonRunsScript(const std::vector<std::string>& words, size_t first) {
  for (size_t i = first; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with('-')) return true;
    if (word == "-") return false;
    if (word.starts_with("--")) {
      if (word == "--check-hash-based-pycs") ++i;
      continue;
    }
    // Letters of options; what follows one that takes a value is that.
    const size_t takes = word.find_first_of("cmWX", 1);
    if (takes == std::string::npos) continue;
    if (word[takes] == 'c') return false;
    if (word[takes] == 'm') return true;
    if (takes + 1 == word.size()) ++i;
  }
  return false;
}

bool TakesArguments(const std::vector<std::string>& words, const std::string& program) {
  if (words.empty()) return false;
  if (std::ranges::any_of(words, [&](const std::string& word) { return IsProgram(word, program); })) return true;
  if (FindShell(words, program) < words.size()) return false;
  bool launcher = false;
  bool first = true;       // but for assignments
  bool may_be_run = true;  // a script that comes next is not a word for another program
  for (size_t i = 0; i < words.size(); ++i) {
    if (IsPython(words[i])) return PythonRunsScript(words, i + 1);
    if (may_be_run && IsScript(words[i])) return true;
    if (launcher && (words[i] == "-m" || words[i] == "--module")) return true;
    launcher = launcher || IsModuleLauncher(words[i]);
    if (RunsOthers(words[i])) {
      may_be_run = true;
    } else if (first ? !IsAssignment(words[i]) : words[i].ends_with(".sh") || words[i].starts_with("./")) {
      may_be_run = false;
    }
    first = first && IsAssignment(words[i]);
  }
  return false;
}

std::vector<std::string> AtSpaces(std::string_view text) {
  std::vector<std::string> words;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    if (text.empty()) return words;
    const size_t end = std::min(text.find_first_of(" \t"), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

/// Returns the commands of a text of a shell, roughly: what stands between ';', '&' and '|'.
std::vector<std::string> Commands(std::string_view text) {
  std::vector<std::string> commands(1);
  for (size_t i = 0; i < text.size(); ++i) {
    const bool copies_output = text[i] == '&' && i > 0 && text[i - 1] == '>';  // 2>&1
    if (!copies_output && (text[i] == ';' || text[i] == '&' || text[i] == '|')) {
      commands.emplace_back();
    } else {
      commands.back() += text[i];
    }
  }
  return commands;
}

}  // namespace

bool IsForToolkit(std::string_view hyperparameter) {
  return hyperparameter.starts_with("sagemaker_") || hyperparameter == "_tuning_objective_metric" ||
         hyperparameter == "default_user_module_name";
}

std::vector<std::string> UserArguments(const TrainingJob& job) {
  std::vector<std::string> arguments;
  for (const auto& [key, value] : job.hyperparameters) {
    if (IsForToolkit(key)) continue;
    arguments.push_back((Utf8SequenceLength(key) == key.size() ? "-" : "--") + key);
    arguments.push_back(ArgumentText(value));
  }
  return arguments;
}

std::vector<std::string> WithArguments(std::vector<std::string> command, const std::vector<std::string>& arguments,
                                       const std::string& program) {
  const std::optional<size_t> shell_text = FindText(command, FindShell(command, program));
  if (!shell_text) {
    if (TakesArguments(command, program)) command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  }
  if (*shell_text + 1 < command.size()) return command;  // the text has arguments of its own
  // The words go to the last command of the text, and only if no other one might be meant.
  std::string& text = command.back();
  if (text.find_first_of("#\n") != std::string::npos || text.find("<<") != std::string::npos) return command;
  const std::vector<std::string> parts = Commands(text);
  const auto takes = [&](const std::string& part) { return TakesArguments(AtSpaces(part), program); };
  if (!takes(parts.back()) || std::any_of(parts.begin(), parts.end() - 1, takes)) return command;
  for (const std::string& argument : arguments) text += " " + ShellWord(argument);
  return command;
}

}  // namespace millrace
