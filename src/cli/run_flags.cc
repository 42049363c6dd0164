#include "cli/run_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <string_view>

#include "cli/console.h"
#include "supervisor/shown_command.h"

namespace millrace::cli {

namespace {

/// Lists the options that one kind of --print does not keep as they are.
struct PrintRules {
  std::set<std::string_view> said;                       // in its own way
  std::map<std::string_view, std::string_view> refused;  // and why
};

constexpr std::string_view kOfEachHost = "it differs from host to host, and all hosts run the same line";
constexpr std::string_view kForSpotInstances = "it is for --print spot-fleet";

const PrintRules& RulesOf(const std::string& print) {
  static const std::map<std::string_view, std::string_view> kOfGroups = {
      {"--ec2", kForSpotInstances},
      {"--role", kOfEachHost},
      {"--host-index", kOfEachHost},
      {"--current-host", kOfEachHost},
      {"--hosts", "there are no names of hosts yet"},
      {"--instance-group", "there are no names of hosts yet"},
      {"--main-hosts", "say it as --group-size NAME=HOSTS"},
      {"--group-token-file", "the printed file brings a secret of its own"},
      {"--volume", "a volume can be at one host only"}};
  static const PrintRules kSpot{
      .said = {"--print", "--print-secrets", "--ec2", "--checkpoint", "--journal", "--log-dir", "--on-end"},
      .refused = {}};
  static const PrintRules kSlurm = [] {
    PrintRules rules{.said = {"--print", "--print-secrets", "--group", "--group-size", "--group-port", "--job-name"},
                     .refused = kOfGroups};
    rules.refused["--image"] = "it is for --print jobset";
    return rules;
  }();
  static const PrintRules kJobset = [] {
    PrintRules rules{
        .said = {"--print", "--print-secrets", "--group", "--group-size", "--group-port", "--job-name", "--image"},
        .refused = kOfGroups};
    rules.refused["--coordinator"] = "the printed file says it, by the name of the job";
    return rules;
  }();
  return print == "slurm-script" ? kSlurm : print == "jobset" ? kJobset : kSpot;
}

// Others can read what is printed: user data by the metadata service and EC2's Describe calls, a manifest by kubectl.
absl::Status CheckSecrets(const RunFlags& flags) {
  if (flags.print_secrets || flags.print == "iam-policy") return absl::OkStatus();
  std::vector<std::vector<std::string>> commands = {flags.run.supervisor.command};
  for (const GivenOption& option : flags.given) commands.push_back({option.name, option.value.value_or("")});
  for (const std::vector<std::string>& words : commands) {
    if (!HasSecret(words)) continue;
    return UsageError(
        "--print {}: others can read the printed file, and a value looks like a secret: {}. Let the command read "
        "it from its environment, a file or a parameter of SSM; if it is no secret, add --print-secrets",
        flags.print, fmt::join(ShownCommand(words), " "));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> KeptWords(const RunFlags& flags) {
  RETURN_IF_ERROR(CheckSecrets(flags));
  const PrintRules& rules = RulesOf(flags.print);
  std::vector<std::string> words;
  for (const GivenOption& option : flags.given) {
    if (rules.said.contains(option.name)) continue;
    if (const auto refused = rules.refused.find(option.name); refused != rules.refused.end()) {
      return UsageError("--print {} does not take {}: {}", flags.print, option.name, refused->second);
    }
    if (!option.value) {
      words.push_back(option.name);
    } else if (option.value->starts_with('-')) {
      words.push_back(fmt::format("{}={}", option.name, *option.value));
    } else {
      words.push_back(option.name);
      words.push_back(*option.value);
    }
  }
  return words;
}

}  // namespace millrace::cli
