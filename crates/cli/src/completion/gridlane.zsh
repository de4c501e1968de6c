#compdef gridlane
# Completion of gridlane for zsh. In ~/.zshrc, behind compinit:
#     source <(gridlane completion zsh)
_gridlane() {
    local -a found directories others
    found=("${(@f)$(gridlane complete zsh -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#}")
    if (( ! ${#found} )); then
        _files
        return
    fi
    directories=("${(@M)found:#*/}")
    others=("${(@)found:#*/}")
    (( ${#directories} )) && compadd -S '' -- "${directories[@]}"
    (( ${#others} )) && compadd -- "${others[@]}"
}
# Loaded from a directory of functions, this file is the function; sourced, it only defines it.
if [[ "${funcstack[1]-}" = _gridlane ]]; then
    _gridlane "$@"
else
    compdef _gridlane gridlane
fi
