#include "job/run_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "aws/credential_chain.h"
#include "base/bytes.h"
#include "base/crypto.h"
#include "base/shell_word.h"
#include "base/usage_error.h"
#include "channel/job_root.h"
#include "channel/user_arguments.h"
#include "job/channel_mounts.h"
#include "job/code_checkout.h"
#include "job/job_lineage.h"
#include "job/served_job.h"
#include "supervisor/job_process.h"
#include "supervisor/notice_watcher.h"
#include "supervisor/shown_command.h"

namespace millrace {

namespace {

// nullopt: there is nobody to ask. Elsewhere than on EC2 it is asked only if the user expects it to be there.
absl::StatusOr<std::optional<EndpointUrl>> FindMetadataService(bool expected) {
  const AwsEnvironment environment = ProcessEnvironment();
  const bool named = !environment.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").value_or("").empty();
  if (!expected && !named && !IsEc2Instance()) return std::nullopt;
  absl::StatusOr<AwsSettings> settings = AwsSettings::Load(environment);
  if (!settings.ok()) {
    // The profile is for the command, which may make it before it needs it: only variables count here.
    const AwsEnvironment variables{
        [&environment](const std::string& name) {
          return name == "AWS_PROFILE" || name == "AWS_DEFAULT_PROFILE" ? std::nullopt : environment.variable(name);
        },
        [](const std::string& path) -> absl::StatusOr<std::string> { return absl::NotFoundError(path); }};
    settings = AwsSettings::Load(variables);
  }
  if (!settings.ok()) return std::move(settings).status();
  return AsUsage(InstanceMetadataService(*settings));
}

// The command runs in the folder of its code.
absl::Status TakeCode(const CodeOptions& given, JobLineage* lineage, SupervisorOptions& options) {
  ASSIGN_OR_RETURN(const CodeSource code, AsUsage(ParseCodeSource(given.source)));
  options.folder = std::filesystem::absolute(given.folder).lexically_normal();
  if (!options.checkpoint.empty() && options.checkpoint.find("://") == std::string::npos)
    options.checkpoint = std::filesystem::absolute(options.checkpoint).lexically_normal();
  ASSIGN_OR_RETURN(options.code, CheckOutCode(code, options.folder, options.checkpoint));
  options.variables["MILLRACE_CODE_COMMIT"] = options.code;
  options.say(fmt::format("the code is commit {} of {}", options.code, WithoutUser(code.url)));
  return lineage != nullptr ? lineage->Code(WithoutUser(code.url), options.code) : absl::OkStatus();
}

// Represents the job that the options describe, and those of its channels that are served while it runs.
struct PreparedJob {
  std::optional<JobRoot> root;  // held to the end
  TrainingJob job;
  ServedChannels channels;
  std::unique_ptr<ChannelMounts> mounts;
  std::unique_ptr<JobLineage> lineage;  // nullptr: not wanted
  JobPlaces places;
};

// The values of secret hyperparameters, as the command may have them.
std::vector<std::string> SecretWords(const DescribedJob& described) {
  TrainingJob job;
  for (const std::string& name : described.secrets) job.hyperparameters[name] = described.job.hyperparameters.at(name);
  const std::vector<std::string> arguments = UserArguments(job);
  std::vector<std::string> words;
  for (size_t i = 1; i < arguments.size(); i += 2) words.insert(words.end(), {ShellWord(arguments[i]), arguments[i]});
  return words;
}

// The hyperparameters become words of the command, as SageMaker's toolkit has it.
void GiveArguments(const RunOptions& run, const TrainingJob& job, SupervisorOptions& options) {
  const std::vector<std::string> arguments = UserArguments(job);
  if (run.job.no_arguments || arguments.empty()) return;
  options.command = WithArguments(std::move(options.command), arguments, job.EntryPoint());
  if (options.command != run.supervisor.command) return;
  options.say(
      "the command gets the hyperparameters in variables only (SM_HPS, SM_HP_*), since it is not one Python script. "
      "To give it arguments, name the program in the hyperparameter sagemaker_program. To silence this message, say "
      "--no-hyperparameter-args");
}

absl::Status PrepareTraining(const RunOptions& run, const JobTalk& talk, SupervisorOptions& options,
                             PreparedJob& prepared) {
  ASSIGN_OR_RETURN(DescribedJob described, AsUsage(TakeJob(run.job)));
  options.secrets = SecretWords(described);
  prepared.job = std::move(described.job);
  prepared.places = std::move(described.places);
  // This comes before the failure file is known: that of another job is not this one's to remove.
  ASSIGN_OR_RETURN(prepared.root, JobRoot::Take(prepared.job.root, JobIdentity(run, prepared.job, prepared.places),
                                                prepared.places.checkpoint_folder, talk.say));
  if (!run.job.lineage.empty()) {
    ASSIGN_OR_RETURN(prepared.lineage, JobLineage::Open(run.job.lineage));
  }
  options.variables = JobVariables(prepared.job);
  options.variables.merge(described.request.environment);
  GiveArguments(run, prepared.job, options);
  if (!described.request.name.empty()) options.variables.emplace("TRAINING_JOB_NAME", described.request.name);
  if (!run.retries_given && described.request.retries) options.restart.retries = *described.request.retries;
  if (!described.request.no_effect.empty())
    talk.say(fmt::format("{}: without effect here: {}", run.job.request, fmt::join(described.request.no_effect, ", ")));
  if (options.failure_file.empty()) options.failure_file = prepared.job.root + "/output/failure";
  absl::StatusOr<ServedChannels> channels = PrepareJob(prepared.job, prepared.places, prepared.lineage.get(), talk);
  RETURN_IF_ERROR(prepared.root->RecordResources());
  ASSIGN_OR_RETURN(prepared.channels, std::move(channels));
  return absl::OkStatus();
}

// Does all that comes before the first attempt.
absl::Status Prepare(const RunOptions& run, const JobTalk& talk, SupervisorOptions& options, PreparedJob& prepared) {
  for (const VolumeOptions& volume : run.volumes) {
    const absl::Status here = BringVolume(volume, talk.say).status();
    RETURN_IF_ERROR(Annotate(here, fmt::format("--volume {}", volume.name)));
  }
  if (run.job.DescribeJob()) RETURN_IF_ERROR(PrepareTraining(run, talk, options, prepared));
  if (!run.code.source.empty()) RETURN_IF_ERROR(TakeCode(run.code, prepared.lineage.get(), options));
  ASSIGN_OR_RETURN(prepared.mounts, ChannelMounts::Make(prepared.job, prepared.channels.mounts, talk.say));
  return absl::OkStatus();
}

// Closes its journal, its records and its mounts at the end.
absl::StatusOr<int> RunPrepared(const RunOptions& run, const JobTalk& talk) {
  HoldNotices();  // Prepare may take long
  SupervisorOptions options = run.supervisor;
  options.begun = std::chrono::steady_clock::now();  // the machine is paid while it prepares
  options.say = talk.say;
  ASSIGN_OR_RETURN(options.metadata_service, FindMetadataService(run.expects_notices));
  std::unique_ptr<RunJournal> journal;
  if (!run.journal.empty()) {
    ASSIGN_OR_RETURN(journal, RunJournal::Open(run.journal));
    options.journal = journal.get();
  }
  PreparedJob prepared;
  if (absl::Status status = Prepare(run, talk, options, prepared); !status.ok()) {
    EndBeforeBegin(options, std::string(ToStd(status.message())));
    return status;
  }
  if (!prepared.channels.any() && !prepared.places.any()) return RunSupervised(options);
  return RunServed(prepared.job, prepared.channels.pipes, *prepared.mounts, prepared.places, prepared.lineage.get(),
                   options);
}

}  // namespace

std::string JobIdentity(const RunOptions& options, const TrainingJob& job, const JobPlaces& places) {
  std::vector<std::string> words{places.checkpoints, options.supervisor.checkpoint, places.output, job.current_host};
  if (places.checkpoints.empty() && options.supervisor.checkpoint.empty()) {
    words.insert(words.end(), options.supervisor.command.begin(), options.supervisor.command.end());
    words.push_back(options.code.source);
    for (const auto& [name, value] : job.hyperparameters) words.push_back(fmt::format("{}={}", name, value));
    for (const Channel& channel : job.channels) words.push_back(fmt::format("{}={}", channel.name, channel.uri));
  }
  std::string text;
  for (const std::string& word : words) text += fmt::format("{}:{}", word.size(), word);
  return HexEncode(Sha256(AsBytes(text)));
}

absl::StatusOr<int> RunJob(const RunOptions& options, const JobTalk& talk) {
  const absl::StatusOr<int> status = RunPrepared(options, talk);
  if (!status.ok() || *status != options.supervisor.restart.requeue_exit) return status;
  // The job continues on another machine, which need not wait for the end of this one. A volume with an open file, or
  // with a mount below it, cannot be unmounted: this comes after all is closed.
  for (const VolumeOptions& volume : options.volumes) {
    const absl::Status released = ReleaseVolume(volume, talk.say);
    if (!released.ok()) talk.say(std::string(ToStd(released.message())));
  }
  return status;
}

}  // namespace millrace
