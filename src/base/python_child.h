#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Millrace starts Python programs like this:
///
///   command.words = PythonModule(DefaultPython(), "millrace.preflight");
///   command.words = {DefaultPython(), "-c", PythonProgram("import torch")};
///
/// They import nothing from the current folder, unless PYTHONPATH names it: a file pyarrow.py beside data of others
/// would run. The same holds for Pythons that they start, from Python 3.11 on. A script that is run by its path needs
/// none of this, since Python looks in the folder of the script.

namespace millrace {

/// Returns the Python of the environment into which pip has put this program; "" if that did not, or it is not found. A
/// wheel is at PREFIX/lib/python3.11/site-packages, whose Python is PREFIX/bin/python3.11, or that name in PATH where
/// pip installs beside the system. A program in the bin/ of a virtual environment has the Python beside it.
std::string OwnPython();

/// Returns the Python that MILLRACE_PYTHON names, else OwnPython(), else "python3".
std::string DefaultPython();

/// Returns the program, as it is given to `python -c` or `python -`.
std::string PythonProgram(std::string_view program);

/// Returns the words that run a module as `python -m` does. Arguments of the module come after them.
std::vector<std::string> PythonModule(const std::string& python, const std::string& module);

}  // namespace millrace
