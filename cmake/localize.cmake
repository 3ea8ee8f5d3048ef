# Copies the object file FROM to TO, in which the functions and variables that FROM defines for others
# are local. Inline functions stay: the linker keeps one of each.
execute_process(COMMAND "${NM}" -g --defined-only "${FROM}" OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[0-9a-f]+ [TDBR] [^\n]+" symbols "${symbols}")
list(TRANSFORM symbols REPLACE "^[0-9a-f]+ [TDBR] " "--localize-symbol=")
execute_process(COMMAND "${OBJCOPY}" ${symbols} "${FROM}" "${TO}" COMMAND_ERROR_IS_FATAL ANY)
