# Completion of gridlane for bash. In ~/.bashrc:
#     source <(gridlane completion bash)
_gridlane() {
    mapfile -t COMPREPLY < <(gridlane complete bash -- "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    # A directory, and an option that wants a value, are gone on with.
    if [[ ${#COMPREPLY[@]} -gt 1 || ${COMPREPLY[0]-} == */ ]]; then
        compopt -o nospace
    fi
}
complete -o default -F _gridlane gridlane
