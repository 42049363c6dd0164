#include "cli/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/size.h"
#include "cli/console.h"
#include "s3/endpoint.h"
#include "store/uri.h"

namespace millrace::cli {

namespace {

// How many letters must be changed, added, left out or exchanged with their neighbour to get from one to the other.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> older, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) row[j] = std::min(row[j], older[j - 2] + 1);
    }
    older = std::exchange(last, row);
  }
  return last[b.size()];
}

// "; did you mean X?", where one of `names` is near.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& names) {
  const auto distance = [word](const std::string& name) { return EditDistance(word, name); };
  const auto nearest = std::min_element(names.begin(), names.end(),
                                        [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  if (nearest == names.end() || distance(*nearest) > std::min<size_t>(2, word.size() / 2)) return {};
  return fmt::format("; did you mean {}?", *nearest);
}

// What no option or positional of the command takes; "" when there is nothing.
std::string ExplainExtra(const CLI::App& command) {
  const std::vector<std::string> extra = command.remaining();  // in the order given
  const auto option =
      std::find_if(extra.begin(), extra.end(), [](const auto& word) { return word.size() > 1 && word[0] == '-'; });
  if (option != extra.end()) {
    const std::string name = option->substr(0, option->find('='));
    std::vector<std::string> names;
    for (const CLI::Option* known : command.get_options()) {
      for (const std::string& long_name : known->get_lnames()) names.push_back("--" + long_name);
    }
    return fmt::format("there is no option {}{}", name, DidYouMean(name, names));
  }
  return extra.empty() ? std::string() : fmt::format("'{}' is one argument too many", extra.front());
}

// A relative path of which not even the first part is there, and which a bucket may be called. A name with an ending
// and no folder is more likely that of a file.
bool LooksLikeABucket(const std::string& uri) {
  const absl::StatusOr<ParsedUri> parsed = ParseUri(uri);
  if (!parsed.ok() || parsed->scheme != ParsedUri::Scheme::kFile || parsed->path != uri) return false;
  const std::string first = uri.substr(0, uri.find('/'));
  if (!PlausibleBucket(first) || first.front() == '.' || first.front() == '-') return false;
  if (first == uri && first.find('.') != std::string::npos) return false;
  std::error_code ignored;  // what cannot be looked at is there
  return std::filesystem::symlink_status(first, ignored).type() == std::filesystem::file_type::not_found;
}

constexpr size_t kMaxColumns = 100;
constexpr size_t kLeastColumns = 60;

size_t HelpColumns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kMaxColumns;
  return std::clamp<size_t>(size.ws_col, kLeastColumns, kMaxColumns);
}

// Broken at spaces and newlines into lines of at most `columns`; a longer word has a line for itself.
std::string Wrapped(std::string_view text, size_t columns) {
  std::string out;
  size_t used = 0;  // of the line
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(" \n"), text.size()));
    if (text.empty()) return out;
    const std::string_view word = text.substr(0, text.find_first_of(" \n"));
    text.remove_prefix(word.size());
    if (used > 0 && used + 1 + word.size() > columns) {
      out += '\n';
      used = 0;
    } else if (used > 0) {
      out += ' ';
      ++used;
    }
    out += word;
    used += word.size();
  }
}

class HelpLayout final : public CLI::Formatter {
 public:
  explicit HelpLayout(size_t columns) : columns_(columns) {}

  std::string make_option_desc(const CLI::Option* option) const override {
    return Wrapped(option->get_description(), columns_ - get_column_width());
  }

  std::string make_subcommand(const CLI::App* command) const override {
    const std::string text = Wrapped(command->get_description(), columns_ - get_column_width());
    const std::string indent(get_column_width(), ' ');
    return fmt::format("{:<{}}{}\n", "  " + command->get_name(), get_column_width(),
                       absl::StrReplaceAll(text, {{"\n", "\n" + indent}}));
  }

  std::string make_footer(const CLI::App* app) const override {
    const std::string footer = app->get_footer();
    std::string out;
    std::string paragraph;
    const auto end_paragraph = [&] {
      if (!paragraph.empty()) out += Wrapped(paragraph, columns_) + '\n';
      paragraph.clear();
    };
    for (std::string_view rest = footer; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (!line.empty() && line.front() != ' ') {
        paragraph.append(line).append(" ");
        continue;
      }
      end_paragraph();
      out.append(line).append("\n");
    }
    end_paragraph();
    return out;
  }

 private:
  const size_t columns_;
};

}  // namespace

std::shared_ptr<CLI::Formatter> HelpFormatter() {
  return std::make_shared<HelpLayout>(HelpColumns());
}

void TakesNumber(CLI::Option* option, uint64_t least, uint64_t most) {
  // As a transformation: CLI11 reads 010 as octal, and takes the largest number there is for what is larger.
  option->transform(CLI::Validator(
      [least, most](std::string& text) -> std::string {
        uint64_t value = 0;
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && stop == end && value >= least && value <= most) {
          text = std::to_string(value);
          return {};
        }
        const bool too_large = error == std::errc::result_out_of_range;
        if (most == UINT64_MAX && !too_large)
          return fmt::format("must be a whole number, {} or more, not {}", least, text);
        return fmt::format("must be a whole number from {} to {}, not {}", least, most, text);
      },
      ""));
}

void TakesWord(CLI::Option* option, const std::vector<std::string>& words) {
  option->check(CLI::Validator(
      [words](std::string& text) -> std::string {
        if (std::find(words.begin(), words.end(), text) != words.end()) return {};
        return fmt::format("must be one of {}, not {}", fmt::join(words, ", "), text);
      },
      ""));
  option->type_name(fmt::format("{}", fmt::join(words, "|")));
}

absl::StatusOr<uint64_t> TakeSize(std::string_view option, std::string_view text) {
  absl::StatusOr<uint64_t> bytes = ParseSize(text);
  if (bytes.ok() && *bytes == 0) bytes = absl::InvalidArgumentError("it must be positive");
  return bytes.ok() ? bytes : AsUsage(Annotate(bytes.status(), option));
}

absl::Status HintAtS3(absl::Status status, const std::vector<std::string>& uris) {
  if (!absl::IsNotFound(status)) return status;
  const auto bucket = std::find_if(uris.begin(), uris.end(), LooksLikeABucket);
  if (bucket == uris.end()) return status;
  return absl::NotFoundError(fmt::format("{}; for an object store write s3://{}", ToStd(status.message()), *bucket));
}

std::string ExplainUsage(const CLI::App& app, const CLI::ParseError& error, std::string_view first_argument) {
  std::string names = "millrace";
  const CLI::App* command = &app;
  std::string extra = ExplainExtra(app);
  while (extra.empty() && !command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    names += " " + command->get_name();
    extra = ExplainExtra(*command);
  }
  std::string message = error.what();
  if (app.get_subcommands().empty() && !first_argument.empty() && !first_argument.starts_with('-')) {
    std::vector<std::string> commands;
    for (const CLI::App* known : app.get_subcommands({})) commands.push_back(known->get_name());
    message = fmt::format("there is no command '{}'{}", first_argument, DidYouMean(first_argument, commands));
  } else if (!extra.empty()) {  // also where something is missing besides: it is probably the same slip
    message = extra;
  }
  return fmt::format("{}: {}\nTry '{} --help'.\n", names, message, names);
}

}  // namespace millrace::cli
