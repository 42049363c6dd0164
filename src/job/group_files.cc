#include "job/group_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/shell_word.h"
#include "job/job_templates.h"

namespace millrace {

namespace {

// DNS and Kubernetes take it as a part of a name.
bool IsLabel(const std::string& text) {
  constexpr size_t kMost = 40;
  const bool plain = std::all_of(text.begin(), text.end(),
                                 [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
  return plain && !text.empty() && text.size() <= kMost && text.front() != '-' && text.back() != '-';
}

// SageMaker takes it as the name of a group, too.
bool IsGroupName(const std::string& text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

// The script has --kill-on-bad-exit=0: the end of one part must not end the others, which hear how the job ends.
std::string SlurmScript(const GroupFileOptions& options) {
  TemplateValues groups = TemplateValues::array();
  for (const JobGroup& group : options.groups) {
    const TemplateValues later(static_cast<size_t>(!groups.empty()), TemplateValues::object());
    groups.push_back({{"group", group.name},
                      {"hosts", group.hosts},
                      {"command", ShellWord(group.command)},
                      {"index", groups.size()},
                      {"later", later}});
  }
  return FillText(JobTemplate("slurm-script.sh"), {{"name", options.name},
                                                   {"port", options.port},
                                                   {"kept", options.kept.empty() ? "" : " " + ShellWords(options.kept)},
                                                   {"groups", groups}});
}

// For what the run itself does after the command has ended: hooks, --output, and the end of the group.
constexpr std::chrono::seconds kAfterGrace{15};

std::string Jobset(const GroupFileOptions& options) {
  const JobGroup& last = options.groups.back();
  std::vector<std::string> words = options.kept;
  for (const JobGroup& group : options.groups) {
    words.emplace_back("--group");
    words.push_back(group.name + "=" + group.command);
  }
  TemplateValues values = {{"name", options.name},
                           {"image", options.image},
                           {"coordinator", fmt::format("{0}-{1}-0-0.{0}:{2}", options.name, last.name, options.port)},
                           {"main-hosts", std::to_string(last.hosts)},
                           {"options", words},
                           {"kill-after", (options.grace + kAfterGrace).count()},
                           {"jobs", TemplateValues::array()}};
  const TemplateValues leaves = TemplateValues::array({options.requeue_exit});
  for (const JobGroup& group : options.groups) {
    values["group"] = group.name;
    values["hosts"] = group.hosts;
    // A host that serves is replaced. The job starts again without one of the last group.
    if (&group != &last) {
      values["pod-failure-policy"] = FillJson(JobTemplate("jobset-replaced.json"), {{"leaves", leaves}});
    } else {
      values.erase("pod-failure-policy");
    }
    values["jobs"].push_back(FillJson(JobTemplate("jobset-job.json"), values));
  }
  // JSON is YAML.
  return fmt::format(
      "# kubectl create secret generic {}-token --from-literal=token=\"$(openssl rand -hex 32)\", then kubectl apply "
      "-f "
      "of this\n{}",
      options.name, JsonFile(FillJson(JobTemplate("jobset.json"), values)));
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

absl::StatusOr<std::string> GroupFile(const GroupFileOptions& options) {
  if (!IsLabel(options.name)) {
    return absl::InvalidArgumentError(
        fmt::format("--job-name {}: write small letters, digits and '-', 40 at most", options.name));
  }
  if (options.kind == "slurm-script") return SlurmScript(options);
  for (const JobGroup& group : options.groups) {
    if (!IsLabel(group.name)) {
      return absl::InvalidArgumentError(
          fmt::format("--group {}: names in Kubernetes are of small letters, digits and '-', 40 at most", group.name));
    }
  }
  if (options.image.empty()) return absl::InvalidArgumentError("--print jobset needs --image, the container image");
  return Jobset(options);
}

}  // namespace millrace
