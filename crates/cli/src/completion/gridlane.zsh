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
compdef _gridlane gridlane
