#include "job/code_checkout.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "aws/sigv4.h"
#include "base/child_process.h"
#include "base/interrupt.h"
#include "net/runtime.h"
#include "store/blocking.h"
#include "store/stores.h"
#include "supervisor/shown_command.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxCodeBytes = 4096;
constexpr const char* kCodeName = "CODE";

// Returns where the path of a URL begins: behind "scheme://authority", or behind "user@host:" as ssh has it.
size_t PathOf(std::string_view url) {
  if (const size_t scheme = url.find("://"); scheme != std::string_view::npos)
    return std::min(url.find('/', scheme + 3), url.size());
  const size_t colon = url.find(':');
  return colon != std::string_view::npos && colon < url.find('/') ? colon + 1 : 0;
}

bool IsCommit(std::string_view text) {
  return text.size() >= 40 && text.size() <= 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Returns the URL without a password, as the clone keeps it. The user name of an https URL may be a token; ssh needs
// its own.
std::string KeptUrl(const std::string& url) {
  return url.starts_with("https://") || url.starts_with("http://") ? WithoutUser(url) : url;
}

class Git {
 public:
  explicit Git(const CodeSource& code)
      : code_(code), host_(code.url.substr(0, PathOf(code.url))), kept_host_(KeptUrl(host_)) {}

  /// Returns the output, without the end of the line.
  absl::StatusOr<std::string> operator()(const std::vector<std::string>& words) const {
    ChildCommand command{.words = {"env", "GIT_TERMINAL_PROMPT=0"}, .keep_errors = true};
    if (kept_host_ != host_) {
      // Other users see the words of a command, and of those that git starts, but neither what they read nor their
      // environment.
      const auto [user, password] = UserOf(host_);
      command.input = fmt::format("{}\n{}\n", user, password.value_or(""));
      const char* const script = password ? kGitWithPassword : kGitWithUser;
      command.words.insert(command.words.end(), {"sh", "-c", script, "sh", "credential." + kept_host_});
    }
    command.words.emplace_back("git");
    command.words.insert(command.words.end(), words.begin(), words.end());
    absl::StatusOr<ChildEnd> end = RunChild(command, interrupt_.token());
    if (!end.ok()) return Annotate(end.status(), fmt::format("--code {}: git", WithoutUser(code_.url)));
    if (end->exit_status == 127) return absl::NotFoundError("--code needs git, which is not installed");
    if (end->exit_status != 0)
      return absl::UnavailableError(
          fmt::format("--code {}: git says: {}", WithoutUser(code_.url), LastLine(end->errors)));
    while (end->output.ends_with('\n')) end->output.pop_back();
    return std::move(end->output);
  }

 private:
  // The user and the password of the URL, decoded as git does it.
  static std::pair<std::string, std::optional<std::string>> UserOf(std::string_view host) {
    const size_t begin = host.find("://") + 3;
    const std::string_view text = host.substr(begin, host.rfind('@') - begin);
    const size_t colon = text.find(':');
    const auto decoded = [](std::string_view part) { return UriDecode(part).value_or(std::string(part)); };
    if (colon == std::string_view::npos) return {decoded(text), std::nullopt};
    return {decoded(text.substr(0, colon)), decoded(text.substr(colon + 1))};
  }

  // Each reads the user and the password, and adds rules to git's configuration that hold for this command alone, for
  // the host that the first word names. Other helpers neither answer for that host nor keep the password.
  static constexpr const char* kGitWithPassword = R"sh(IFS= read -r MILLRACE_GIT_USER
IFS= read -r MILLRACE_GIT_PASSWORD
export MILLRACE_GIT_USER MILLRACE_GIT_PASSWORD
n=${GIT_CONFIG_COUNT:-0}
export "GIT_CONFIG_COUNT=$((n + 2))" "GIT_CONFIG_KEY_$n=$1.helper" "GIT_CONFIG_VALUE_$n="
export "GIT_CONFIG_KEY_$((n + 1))=$1.helper" "GIT_CONFIG_VALUE_$((n + 1))"='!f() {
  printf "username=%s\npassword=%s\n" "$MILLRACE_GIT_USER" "$MILLRACE_GIT_PASSWORD"
}; f'
shift
exec "$@" </dev/null)sh";
  static constexpr const char* kGitWithUser = R"sh(IFS= read -r user
n=${GIT_CONFIG_COUNT:-0}
export "GIT_CONFIG_COUNT=$((n + 1))" "GIT_CONFIG_KEY_$n=$1.username" "GIT_CONFIG_VALUE_$n=$user"
shift
exec "$@" </dev/null)sh";

  std::string LastLine(std::string text) const {
    while (text.ends_with('\n')) text.pop_back();
    if (const size_t begin = text.rfind('\n'); begin != std::string::npos) text.erase(0, begin + 1);
    // It may quote a URL with its password.
    const std::string shown = WithoutUser(host_);
    for (size_t at = 0; shown != host_ && (at = text.find(host_, at)) != std::string::npos; at += shown.size())
      text.replace(at, host_.size(), shown);
    return text;
  }

  const CodeSource& code_;
  const std::string host_;       // "https://me:password@host"
  const std::string kept_host_;  // "https://host"
  const InterruptStop interrupt_;
};

absl::Status Clone(const Git& git, const CodeSource& code, const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder + "/.git", error)) {
    if (std::filesystem::exists(folder, error) && !std::filesystem::is_empty(folder, error)) {
      return absl::FailedPreconditionError(
          fmt::format("{}: the folder for --code has other files; name another one by --code-dir", folder));
    }
    return git({"clone", "--quiet", "--no-checkout", "--", KeptUrl(code.url), folder}).status();
  }
  ASSIGN_OR_RETURN(const std::string origin, git({"-C", folder, "config", "--get", "remote.origin.url"}));
  if (KeptUrl(origin) != KeptUrl(code.url)) {
    return absl::FailedPreconditionError(fmt::format("{} is a clone of {}, not of {}; name another one by --code-dir",
                                                     folder, WithoutUser(origin), WithoutUser(code.url)));
  }
  // A clone of an earlier version may hold a password.
  if (origin != KeptUrl(origin))
    RETURN_IF_ERROR(git({"-C", folder, "config", "remote.origin.url", KeptUrl(origin)}).status());
  return git({"-C", folder, "fetch", "--quiet", "--tags", "--force", "origin"}).status();
}

// Returns the commit that the branch, tag or commit is now.
absl::StatusOr<std::string> Resolve(const Git& git, const CodeSource& code, const std::string& folder) {
  for (const std::string& name : {"origin/" + (code.ref.empty() ? "HEAD" : code.ref), code.ref}) {
    if (name.empty()) continue;
    absl::StatusOr<std::string> commit = git({"-C", folder, "rev-parse", "--quiet", "--verify", name + "^{commit}"});
    if (commit.ok() && IsCommit(*commit)) return commit;
  }
  return absl::NotFoundError(fmt::format("--code: {} has no branch, tag or commit '{}'", WithoutUser(code.url),
                                         code.ref.empty() ? "HEAD" : code.ref));
}

std::string RecordOf(const CodeSource& code, const std::string& commit) {
  return fmt::format("{}\n{}\n", commit, WithoutUser(code.url));
}

// Returns the commit of the record; an error if it is of another repository.
absl::StatusOr<std::string> CommitOf(const std::string& record, const CodeSource& code, const std::string& uri) {
  const std::string commit = record.substr(0, record.find('\n'));
  if (!IsCommit(commit))
    return absl::DataLossError(fmt::format("{}: there is no commit in it; remove the object", uri));
  if (record == RecordOf(code, commit)) return commit;
  const std::string url = record.substr(commit.size() + 1, record.find('\n', commit.size() + 1) - commit.size() - 1);
  return absl::FailedPreconditionError(
      fmt::format("{}: this job runs the code of {}, not of {}; remove the object to change that", uri, url,
                  WithoutUser(code.url)));
}

// Returns the commit that the job has. If the job does not have one yet, it gets `commit`.
absl::StatusOr<std::optional<std::string>> CommitOfJob(const CodeSource& code, const std::string& checkpoint,
                                                       const std::optional<std::string>& commit) {
  if (checkpoint.empty()) return commit;
  Runtime runtime;
  Stores stores(runtime);
  ASSIGN_OR_RETURN(const Location place, stores.Open(checkpoint));
  std::string prefix = place.prefix;
  if (!prefix.empty() && !prefix.ends_with('/')) prefix += '/';
  const std::string key = prefix + kCodeName;
  if (commit) {
    const std::string record = RecordOf(code, *commit);
    const absl::Status put = PutBlocking(*place.store, key, AsBytes(record), {.only_if_absent = true}).status();
    if (put.ok()) return commit;
    // Another machine of the job was faster.
    if (!absl::IsAlreadyExists(put)) return put;
  }
  const absl::StatusOr<std::string> record = ReadAll(*place.store, key, kMaxCodeBytes);
  if (absl::IsNotFound(record.status()) && !commit) return std::nullopt;
  if (!record.ok()) return record.status();
  return CommitOf(*record, code, place.store->Uri(key));
}

}  // namespace

absl::StatusOr<CodeSource> ParseCodeSource(std::string_view text) {
  CodeSource code;
  const size_t at = text.rfind('@');
  const bool has_ref = at != std::string_view::npos && at > PathOf(text);
  code.url = text.substr(0, has_ref ? at : std::string_view::npos);
  if (has_ref) code.ref = text.substr(at + 1);
  if (code.url.empty() || code.url.starts_with('-') || code.url.starts_with('@') || (has_ref && code.ref.empty()) ||
      code.ref.starts_with('-'))
    return absl::InvalidArgumentError("--code takes URL[@REF], such as https://github.com/me/train@v1.2");
  return code;
}

absl::StatusOr<std::string> CheckOutCode(const CodeSource& code, const std::string& folder,
                                         const std::string& checkpoint) {
  ASSIGN_OR_RETURN(std::optional<std::string> commit, CommitOfJob(code, checkpoint, std::nullopt));
  {
    const Git git(code);
    RETURN_IF_ERROR(Clone(git, code, folder));
    if (!commit) {
      ASSIGN_OR_RETURN(commit, Resolve(git, code, folder));
    }
  }
  ASSIGN_OR_RETURN(commit, CommitOfJob(code, checkpoint, commit));
  const Git git(code);
  // No branch may lead to the commit of a job any more.
  if (!git({"-C", folder, "cat-file", "-e", *commit + "^{commit}"}).ok())
    RETURN_IF_ERROR(git({"-C", folder, "fetch", "--quiet", "origin", *commit}).status());
  RETURN_IF_ERROR(git({"-C", folder, "checkout", "--quiet", "--detach", *commit}).status());
  RETURN_IF_ERROR(git({"-C", folder, "submodule", "--quiet", "update", "--init", "--recursive"}).status());
  return *commit;
}

}  // namespace millrace
