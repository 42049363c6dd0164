#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Python programs that Millrace starts:
///
/// Python children are started like this:
///   command.words = PythonModule(DefaultPython(), "millrace.preflight");
///   command.words = {DefaultPython(), "-c", PythonProgram("import torch")};
///
/// They import nothing from the current folder, unless PYTHONPATH names it: a file pyarrow.py beside data of others
/// would run. The same holds for Pythons that they start, from Python 3.11 on. A script that is run by its path needs
/// none of this, since Python looks in the folder of the script.

namespace millrace {

/// The Python that MILLRACE_PYTHON names, else "python3".
std::string DefaultPython();

/// The program, as it is given to `python -c` or `python -`.
std::string PythonProgram(std::string_view program);

/// The words that run a module as `python -m` does. Arguments of the module come behind them.
std::vector<std::string> PythonModule(const std::string& python, const std::string& module);

}  // namespace millrace
