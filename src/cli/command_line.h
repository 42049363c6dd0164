#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

/// Commands describe their options here, and users get a message if a command line makes no sense. Only one file
/// includes CLI11, since a file that includes it takes seconds to compile.

namespace millrace::cli {

/// Represents an option or an argument of a command. A handle: copy it at will.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& Required();
  /// It takes a whole number, `least` to `most`, in decimal.
  Option& Number(uint64_t least, uint64_t most = UINT64_MAX);
  /// It takes one of these words, which --help shows.
  Option& Words(const std::vector<std::string>& words);
  /// Former names of these words are accepted, too: pairs of a former name and the word. --help does not show them.
  Option& FormerNames(const std::map<std::string, std::string>& names);
  /// It makes sense only beside the other one.
  Option& Needs(const Option& other);
  /// For a list: values without the option's name before them belong to it, too.
  Option& ManyValues();
  /// The value may be left out, and is then this one.
  Option& ValueOrElse(const std::string& value);

 private:
  friend class Command;
  Option& Shown();
  CLI::Option* option_;
};

/// An option as it was given: "--name", and its value unless it takes none.
struct GivenOption {
  std::string name;
  std::optional<std::string> value;
};

/// `millrace` itself, or a command below it. A handle: copy it at will. Variables that it is given must live until the
/// command has run.
class Command {
 public:
  using Action = std::function<int()>;

  Command(CLI::App* app, Action* chosen) : app_(app), chosen_(chosen) {}

  /// The same command. --help lists the commands and the options that are added through the result below this heading.
  Command Under(const std::string& heading) const;
  /// The same command. The options that are added through the result make sense only beside this one.
  Command Beside(const Option& other) const;

  /// One of its commands has to be chosen.
  Command AddCommand(const std::string& name, const std::string& summary) const;
  /// The same, but this command does something without it, too.
  Command AddOptionalCommand(const std::string& name, const std::string& summary) const;

  /// "--name" is an option, "name" an argument. A name of its value in --help may follow: "--cache DIR". Defined for
  /// strings, integers and doubles, optional strings and numbers, and lists of strings. The name of an option that is a
  /// list stands before each of its values.
  template <typename T>
  Option Add(const std::string& name, T* value, const std::string& help) const;
  /// The same; --help shows the value that the variable has now.
  template <typename T>
  Option AddShown(const std::string& name, T* value, const std::string& help) const {
    return Add(name, value, help).Shown();
  }
  Option AddFlag(const std::string& name, bool* value, const std::string& help) const;

  /// Options that may be repeated, by name and help, and whose order counts, also that among them. The result tells the
  /// action of the command which values were given, each with the name of its option.
  using NamedValues = std::vector<std::pair<std::string, std::string>>;
  std::function<NamedValues()> AddInOrder(std::initializer_list<std::pair<const char*, const char*>> options,
                                          const std::string& called) const;

  /// Returns, for the action of the command, all options that were given, one entry each value, in the order in which
  /// the command has them.
  std::vector<GivenOption> Given() const;

  /// Returns the text of --help for the command below this one that these words name; all of its own for no words.
  /// NotFound says which word is no command, and which one may be meant.
  absl::StatusOr<std::string> Help(const std::vector<std::string>& words) const;

  const std::string& name() const;
  /// Returns the commands below it, and those below them.
  std::vector<Command> Commands() const;

  /// --help shows the text below the options. Lines that begin with a space, such as examples, stay as they are; the
  /// others make paragraphs, which an empty line ends.
  void Footer(const std::string& text) const;

  /// Sets the action of the command. Its result is the exit status: 0 done, 1 failed, 2 usage.
  void Run(Action action) const;

 private:
  Option Added(CLI::Option* option) const;

  CLI::App* app_;
  Action* chosen_;
  std::string heading_;
  std::optional<Option> beside_;
};

class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& summary, const std::string& version);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Command root() { return Command(app_.get(), &chosen_); }

  /// The action runs before any command. If its result is not 0, that is the exit status, and the command does not run.
  void BeforeRun(Command::Action action) { before_ = std::move(action); }

  /// Does what the arguments ask for: a command, --help or --version. Says on stderr what is wrong with them: "millrace
  /// feed: there is no option --shufle; did you mean --shuffle?". Returns the exit status.
  int Run(int argc, char** argv);

 private:
  const std::unique_ptr<CLI::App> app_;
  Command::Action chosen_;
  Command::Action before_;
};

}  // namespace millrace::cli
