#include "cli/run_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/shell_word.h"
#include "cli/run_words.h"

namespace millrace::cli {

namespace {

// What DNS and Kubernetes take as the part of a name.
bool IsLabel(const std::string& text) {
  constexpr size_t kMost = 40;
  const bool plain = std::all_of(text.begin(), text.end(),
                                 [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
  return plain && !text.empty() && text.size() <= kMost && text.front() != '-' && text.back() != '-';
}

// What SageMaker takes as the name of a group, too.
bool IsGroupName(const std::string& text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

std::string SlurmScript(const GroupFlags& flags, const std::vector<JobGroup>& groups, const std::string& kept) {
  std::string text = fmt::format("#!/usr/bin/env bash\n#SBATCH --job-name={}\n", flags.name);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i > 0) text += "#SBATCH hetjob\n";
    text += fmt::format(
        "# group {}: say here what its nodes are (--partition, --gres, --cpus-per-task)\n#SBATCH --nodes={} "
        "--ntasks-per-node=1\n",
        groups[i].name, groups[i].hosts);
  }
  text +=
      "set -euo pipefail\n"
      "# A secret of this job, in a folder that all nodes see.\n"
      "token=$PWD/.millrace-token-$SLURM_JOB_ID\n"
      "(umask 077 && openssl rand -hex 32 >\"$token\")\n"
      "trap 'rm -f \"$token\"' EXIT\n";
  std::string run = fmt::format("millrace run{} --group-token-file \"$token\" --group-port {}", kept, flags.port);
  for (const JobGroup& group : groups) run += fmt::format(" \\\n  --group {}={}", group.name, ShellWord(group.command));
  text += fmt::format("run() {{\n  {} \"$@\"\n}}\nexport -f run\nexport token\n", run);
  // The end of a part must not end the others: they hear by themselves how the job ends.
  text += "srun --kill-on-bad-exit=0";
  for (size_t i = 0; i < groups.size(); ++i) {
    text += fmt::format("{} --het-group={} bash -c run", i == 0 ? "" : " :", i);
  }
  return text + "\n";
}

std::string Jobset(const GroupFlags& flags, const std::vector<JobGroup>& groups, const std::vector<std::string>& kept) {
  using Json = nlohmann::ordered_json;
  const JobGroup& last = groups.back();
  const std::string coordinator = fmt::format("{0}-{1}-0-0.{0}:{2}", flags.name, last.name, flags.port);
  Json jobs = Json::array();
  for (const JobGroup& group : groups) {
    Json command = {"millrace",
                    "run",
                    "--role",
                    group.name,
                    "--coordinator",
                    coordinator,
                    "--main-hosts",
                    std::to_string(last.hosts),
                    "--group-token-file",
                    "/etc/millrace/token/token"};
    for (const std::string& word : kept) command.push_back(word);
    for (const JobGroup& each : groups) {
      command.push_back("--group");
      command.push_back(each.name + "=" + each.command);
    }
    const Json container = {
        {"name", group.name},
        {"image", flags.image},
        {"command", command},
        {"volumeMounts", {{{"name", "token"}, {"mountPath", "/etc/millrace/token"}, {"readOnly", true}}}}};
    const Json pod = {{"restartPolicy", "Never"},
                      {"containers", {container}},
                      {"volumes", {{{"name", "token"}, {"secret", {{"secretName", flags.name + "-token"}}}}}}};
    const Json job = {{"parallelism", group.hosts},
                      {"completions", group.hosts},
                      {"completionMode", "Indexed"},
                      {"backoffLimit", 0},
                      {"template", {{"spec", pod}}}};
    jobs.push_back({{"name", group.name}, {"replicas", 1}, {"template", {{"spec", job}}}});
  }
  const Json manifest = {{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
                         {"kind", "JobSet"},
                         {"metadata", {{"name", flags.name}}},
                         {"spec",
                          {{"network", {{"enableDNSHostnames", true}, {"publishNotReadyAddresses", true}}},
                           {"failurePolicy", {{"maxRestarts", 3}}},
                           {"replicatedJobs", jobs}}}};
  // JSON is YAML.
  return fmt::format(
      "# kubectl create secret generic {}-token --from-literal=token=\"$(openssl rand -hex 32)\", then kubectl apply "
      "-f "
      "of this\n{}\n",
      flags.name, manifest.dump(2));
}

}  // namespace

absl::StatusOr<std::vector<JobGroup>> TakeGroups(const std::vector<std::string>& groups,
                                                 const std::vector<std::string>& sizes) {
  std::vector<JobGroup> taken;
  const auto find = [&taken](const std::string& name) {
    return std::find_if(taken.begin(), taken.end(), [&](const JobGroup& each) { return each.name == name; });
  };
  for (const std::string& text : groups) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (equals == text.npos || !IsGroupName(name) || equals + 1 == text.size()) {
      return absl::InvalidArgumentError(
          fmt::format("--group {}: write NAME=COMMAND, with a name of letters, digits, '-', '_' and '.'", text));
    }
    if (find(name) != taken.end())
      return absl::InvalidArgumentError(fmt::format("--group {} stands there twice", name));
    taken.push_back({.name = name, .command = text.substr(equals + 1)});
  }
  for (const std::string& text : sizes) {
    const size_t equals = text.find('=');
    const auto group = find(text.substr(0, equals));
    const std::string number = equals == text.npos ? "" : text.substr(equals + 1);
    uint64_t hosts = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), hosts);
    if (group == taken.end() || error != std::errc() || end != number.data() + number.size() || hosts == 0) {
      return absl::InvalidArgumentError(
          fmt::format("--group-size {}: write NAME=HOSTS, with the name of a group", text));
    }
    group->hosts = hosts;
  }
  return taken;
}

absl::StatusOr<std::string> Manifest(const RunFlags& run) {
  const GroupFlags& flags = run.group;
  ASSIGN_OR_RETURN(const std::vector<JobGroup> groups, TakeGroups(flags.groups, flags.sizes));
  if (!IsLabel(flags.name)) {
    return absl::InvalidArgumentError(
        fmt::format("--job-name {}: write small letters, digits and '-', 40 at most", flags.name));
  }
  if (run.print == "slurm-script") {
    ASSIGN_OR_RETURN(const std::string kept, KeptText(run));
    return SlurmScript(flags, groups, kept);
  }
  for (const JobGroup& group : groups) {
    if (!IsLabel(group.name)) {
      return absl::InvalidArgumentError(
          fmt::format("--group {}: names in Kubernetes are of small letters, digits and '-', 40 at most", group.name));
    }
  }
  if (flags.image.empty()) return absl::InvalidArgumentError("--print jobset needs --image, the container image");
  ASSIGN_OR_RETURN(const std::vector<std::string> kept, KeptWords(run));
  return Jobset(flags, groups, kept);
}

}  // namespace millrace::cli
