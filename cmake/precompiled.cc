// A program without it could not precompile precompiled.h.
