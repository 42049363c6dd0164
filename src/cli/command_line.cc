#include "cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <string_view>

#include "absl/strings/str_replace.h"
#include "cli/console.h"

namespace millrace::cli {

namespace {

// Returns how many letters must be changed, added, left out or exchanged with their neighbour to get from one to the
// other.
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

// "there is no command 'fed'; did you mean feed?", of a word in the place of a command below this one.
std::string ExplainUnknown(const CLI::App& command, std::string_view word) {
  std::vector<std::string> names;
  for (const CLI::App* known : command.get_subcommands({})) names.push_back(known->get_name());
  std::string hint = DidYouMean(word, names);
  if (hint.empty()) hint = fmt::format("; the commands are {}", fmt::join(names, ", "));
  return fmt::format("there is no command '{}'{}", word, hint);
}

// Explains the first word that no option or positional of the command takes; "" if there is no such word.
std::string ExplainExtra(const CLI::App& command) {
  std::vector<std::string> extra = command.remaining();  // in the order given
  // The words behind "--" are the command of `run`. If something before them is wrong, they were not looked at.
  extra.erase(std::find(extra.begin(), extra.end(), "--"), extra.end());
  const bool lacks_command = command.get_require_subcommand_min() > 0 && command.get_subcommands().empty();
  if (lacks_command && !extra.empty() && !extra.front().starts_with('-')) return ExplainUnknown(command, extra.front());
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
  return extra.empty()
             ? std::string()
             : fmt::format("'{}' is one argument too many; quote a pattern, so that the shell leaves it alone",
                           extra.front());
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

// "millrace feed: there is no option --shufle; did you mean --shuffle?", for an error of app.parse().
std::string ExplainUsage(const CLI::App& app, const CLI::ParseError& error) {
  std::string names = "millrace";
  const CLI::App* command = &app;
  std::string extra = ExplainExtra(app);
  while (extra.empty() && !command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    names += " " + command->get_name();
    extra = ExplainExtra(*command);
  }
  // A superfluous word counts even if something else is missing: it is probably the same slip.
  return fmt::format("{}: {}\nTry '{} --help'.\n", names, extra.empty() ? error.what() : extra, names);
}

}  // namespace

Option& Option::Required() {
  option_->required();
  return *this;
}

Option& Option::Shown() {
  option_->capture_default_str();
  return *this;
}

Option& Option::Number(uint64_t least, uint64_t most) {
  // The check is a transformation, since CLI11 reads 010 as octal, and takes the largest possible number for a larger
  // one.
  option_->transform(CLI::Validator(
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
  return *this;
}

Option& Option::Words(const std::vector<std::string>& words) {
  option_->check(CLI::Validator(
      [words](std::string& text) -> std::string {
        if (std::find(words.begin(), words.end(), text) != words.end()) return {};
        return fmt::format("must be one of {}, not {}", fmt::join(words, ", "), text);
      },
      ""));
  option_->type_name(fmt::format("{}", fmt::join(words, "|")));
  return *this;
}

Option& Option::FormerNames(const std::map<std::string, std::string>& names) {
  // CLI11 transforms a value before it checks it, in whichever order the two were added.
  option_->transform(CLI::Validator(
      [names](std::string& text) -> std::string {
        if (const auto found = names.find(text); found != names.end()) text = found->second;
        return {};
      },
      ""));
  return *this;
}

Option& Option::Needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

Option& Option::ManyValues() {
  option_->allow_extra_args();
  return *this;
}

Option& Option::ValueOrElse(const std::string& value) {
  option_->expected(0, 1)->default_str(value);
  return *this;
}

Command Command::Under(const std::string& heading) const {
  Command command = *this;
  command.heading_ = heading;
  return command;
}

Command Command::Beside(const Option& other) const {
  Command command = *this;
  command.beside_ = other;
  return command;
}

Option Command::Added(CLI::Option* option) const {
  if (!heading_.empty()) option->group(heading_);
  if (beside_) option->needs(beside_->option_);
  return Option(option);
}

Command Command::AddCommand(const std::string& name, const std::string& summary) const {
  const Command added = AddOptionalCommand(name, summary);
  app_->require_subcommand(1);
  return added;
}

Command Command::AddOptionalCommand(const std::string& name, const std::string& summary) const {
  app_->require_subcommand(0, 1);
  CLI::App* const added = app_->add_subcommand(name, summary);
  if (!heading_.empty()) added->group(heading_);
  return {added, chosen_};
}

template <typename T>
Option Command::Add(const std::string& name, T* value, const std::string& help) const {
  const size_t space = name.find(' ');
  CLI::Option* const option = app_->add_option(name.substr(0, space), *value, help);
  if (space != std::string::npos) option->type_name(name.substr(space + 1));
  if (std::is_same_v<T, std::vector<std::string>> && name.starts_with('-')) option->allow_extra_args(false);
  return Added(option);
}
template Option Command::Add(const std::string&, std::string*, const std::string&) const;
template Option Command::Add(const std::string&, std::vector<std::string>*, const std::string&) const;
template Option Command::Add(const std::string&, std::optional<std::string>*, const std::string&) const;
template Option Command::Add(const std::string&, std::optional<uint64_t>*, const std::string&) const;
template Option Command::Add(const std::string&, uint64_t*, const std::string&) const;
template Option Command::Add(const std::string&, int64_t*, const std::string&) const;
template Option Command::Add(const std::string&, int*, const std::string&) const;
template Option Command::Add(const std::string&, uint16_t*, const std::string&) const;
template Option Command::Add(const std::string&, double*, const std::string&) const;

Option Command::AddFlag(const std::string& name, bool* value, const std::string& help) const {
  return Added(app_->add_flag(name, *value, help));
}

std::function<Command::NamedValues()> Command::AddInOrder(
    std::initializer_list<std::pair<const char*, const char*>> options, const std::string& called) const {
  struct Given {
    std::string name;
    std::vector<std::string> values;
  };
  auto all = std::make_shared<std::deque<Given>>();
  std::map<const CLI::Option*, const Given*> by_option;
  for (const auto& [name, help] : options) {
    Given& given = all->emplace_back(Given{.name = name, .values = {}});
    by_option[app_->add_option(name, given.values, help)->type_name(called)->allow_extra_args(false)] = &given;
  }
  // CLI11 keeps the order of options, and of the values of each.
  return [app = app_, all, by_option] {
    NamedValues values;
    std::map<const Given*, size_t> next;
    for (const CLI::Option* option : app->parse_order()) {
      const auto known = by_option.find(option);
      if (known == by_option.end()) continue;
      const Given* const given = known->second;
      values.emplace_back(given->name, given->values.at(next[given]++));
    }
    return values;
  };
}

std::vector<GivenOption> Command::Given() const {
  std::vector<GivenOption> given;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_lnames().empty() || option->count() == 0) continue;
    const std::string name = "--" + option->get_lnames().front();
    const bool is_flag = option->get_expected_max() == 0;
    if (is_flag) given.push_back({name, std::nullopt});
    for (const std::string& value : option->results()) {
      if (!is_flag) given.push_back({name, value});
    }
  }
  return given;
}

absl::StatusOr<std::string> Command::Help(const std::vector<std::string>& words) const {
  CLI::App* app = app_;
  std::string names = app_->get_name();
  for (const std::string& word : words) {
    const std::vector<CLI::App*> below =
        app->get_subcommands([&word](const CLI::App* one) { return one->get_name() == word; });
    if (below.empty()) return absl::NotFoundError(ExplainUnknown(*app, word));
    app = below.front();
    names += " " + word;
  }
  // App::help would show the command that was chosen, which is `help`.
  return app->get_formatter()->make_help(app, names, CLI::AppFormatMode::Normal);
}

const std::string& Command::name() const {
  return app_->get_name();
}

std::vector<Command> Command::Commands() const {
  std::vector<Command> commands;
  for (CLI::App* const app : app_->get_subcommands({})) {
    const Command command(app, chosen_);
    commands.push_back(command);
    const std::vector<Command> below = command.Commands();
    commands.insert(commands.end(), below.begin(), below.end());
  }
  return commands;
}

void Command::Footer(const std::string& text) const {
  app_->footer(text);
}

void Command::Run(Action action) const {
  // CLI11 calls back a command below another one first, and that is the one that was asked for.
  app_->callback([chosen = chosen_, action = std::move(action)] {
    if (!*chosen) *chosen = action;
  });
}

CommandLine::CommandLine(const std::string& name, const std::string& summary, const std::string& version)
    : app_(std::make_unique<CLI::App>(summary, name)) {
  app_->set_version_flag("--version", name + " " + version);
  app_->formatter(std::make_shared<HelpLayout>(HelpColumns()));  // before the commands, which take it over
}

CommandLine::~CommandLine() = default;

int CommandLine::Run(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      std::ostringstream text;
      app_->exit(error, text, text);
      const absl::Status status = WriteStdout(text.str());
      return status.ok() ? 0 : Fail("help", status);
    }
    PrintError("{}", ExplainUsage(*app_, error));
    return 2;
  }
  if (before_) {
    if (const int code = before_(); code != 0) return code;
  }
  return chosen_();
}

}  // namespace millrace::cli
