# Completion of holdfast for bash, written by `make api` from the parsers of the subcommands.

_holdfast()
{
    local line=${COMP_LINE:0:COMP_POINT} words word current previous options= valued= choices= command=
    local at=2 seen=0 length=0 offset=0
    COMPREPLY=()
    read -ra words <<< "$line"  # unlike COMP_WORDS, not split at = and :
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${words[-1]} previous=${words[-2]}
    if (( ${#words[@]} == 2 )); then
        COMPREPLY=($(compgen -W "run elect schedule jobs acquire release ls show watch wait break server doctor nodes acl bench demo completion help --help --version" -- "$current"))
        return
    fi
    case ${words[1]} in
        help) choices="run elect schedule jobs acquire release ls show watch wait break server doctor nodes acl bench demo completion" ;;
        run) options="-h --help -c --limit --shared --exclusive -w --wait -n --nonblock -E --conflict-exit-code --skip --ttl --kill-after --on-lost --keep-daemons --max-runtime --label --url --url-file --local --prefix --max-ttl --pass-url -q --quiet -v --verbose --json" valued="-c --limit -w --wait -E --conflict-exit-code --ttl --kill-after --on-lost --max-runtime --label --url --url-file --prefix --max-ttl" choices="" command=1 ;;
        elect) options="-h --help --observe --as --value -w --wait --ttl --kill-after --on-lost --keep-daemons --url --url-file --local --prefix --max-ttl --pass-url -q --quiet -v --verbose --json" valued="--as --value -w --wait --ttl --kill-after --on-lost --url --url-file --prefix --max-ttl" choices="" command=1 ;;
        schedule) options="-h --help --url --url-file --local --name --strict --prefix --feature --finish-within --check -q --quiet -v --verbose --json" valued="--url --url-file --name --prefix --feature --finish-within" choices="FILES" ;;
        jobs) options="-h --help --schedule --prefix --last --url --url-file --local -q --quiet --json" valued="--schedule --prefix --last --url --url-file" choices="history pause resume run cancel remove" ;;
        acquire) options="-h --help --ttl -w --wait -n --nonblock --ticket-file --label --url --url-file --local --prefix -q --quiet -v --verbose --json" valued="--ttl -w --wait --ticket-file --label --url --url-file --prefix" choices="" ;;
        release) options="-h --help --ticket-file --url --url-file --local --prefix -q --quiet -v --verbose --json" valued="--ticket-file --url --url-file --prefix" choices="" ;;
        ls) options="-h --help --deadlocks --url --url-file --local --prefix -q --quiet --json" valued="--url --url-file --prefix" choices="" ;;
        show) options="-h --help --url --url-file --local --prefix --key -q --quiet --json" valued="--url --url-file --prefix --key" choices="" ;;
        watch) options="-h --help --interval --count --url --url-file --local --prefix -q --quiet --json" valued="--interval --count --url --url-file --prefix" choices="" ;;
        wait) options="-h --help -w --wait --url --url-file --local --prefix --key -q --quiet -v --verbose --json" valued="-w --wait --url --url-file --prefix --key" choices="" ;;
        break) options="-h --help -y --yes --holder --by --url --url-file --local --prefix --key -q --quiet --json" valued="--holder --by --url --url-file --prefix --key" choices="" ;;
        server) options="-h --help --url --url-file --local --port --no-password -q --quiet --json" valued="--url --url-file --port" choices="status stop" ;;
        doctor) options="-h --help --url --url-file --local --ttl --replicas --prefix --json -q --quiet" valued="--url --url-file --ttl --replicas --prefix" choices="" ;;
        nodes) options="-h --help --url --url-file --local --max-ttl --prefix --force -q --quiet --json" valued="--url --url-file --max-ttl --prefix" choices="init" ;;
        acl) options="-h --help --user --prefix --key --sentinel --replicas --quarantine --cache --once --inspect --break --election --events --schedule --permits --redlock --cluster --fencing --timestamp --select --url --url-file --server-version -q --quiet --json" valued="--user --prefix --key --fencing --timestamp --url --url-file --server-version" choices="" ;;
        bench) options="-h --help --list --url --url-file --quick --seconds -q --quiet --json --output --charts" valued="--url --url-file --seconds --output --charts" choices="" ;;
        demo) options="-h --help --json" valued="" choices="tour counter ladder schedule quorum stampede" ;;
        completion) options="-h --help" valued="" choices="bash zsh fish" ;;
        *) return ;;
    esac
    if [[ $command ]]; then
        while (( at < ${#words[@]} - 1 )); do
            word=${words[at]}
            if [[ $word == -- ]]; then
                (( at += 1, seen = 2 ))
                break
            elif [[ $word == -?* ]]; then
                [[ " $valued " == *" $word "* ]] && (( at += 1 ))
            elif (( ++seen == 2 )); then
                break
            fi
            (( at += 1 ))
        done
        if (( seen == 2 )) || [[ $seen == 1 && $current != -* ]]; then
            (( seen == 2 && at < ${#words[@]} )) || (( at = ${#words[@]} - 1 ))
            if (( seen == 1 )) && [[ " $valued " == *" $previous "* ]]; then
                :  # the value of an option after the name
            elif declare -F _command_offset > /dev/null; then
                for word in "${words[@]:0:at}"; do (( length += ${#word} )); done
                while (( length > 0 )); do (( length -= ${#COMP_WORDS[offset]}, offset += 1 )); done
                _command_offset "$offset"
                return
            elif (( at == ${#words[@]} - 1 )); then
                COMPREPLY=($(compgen -c -- "$current"))
                return
            else
                compopt -o default
                return
            fi
        fi
    fi
    if [[ $current == --*=* ]]; then
        previous=${current%%=*} current=${current#*=}
    fi
    case ${words[1]}:$previous in
        run:--on-lost) COMPREPLY=($(compgen -W "term kill warn" -- "$current")); return ;;
        run:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        elect:--on-lost) COMPREPLY=($(compgen -W "term kill warn" -- "$current")); return ;;
        elect:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        schedule:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        jobs:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        acquire:--ticket-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        acquire:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        release:--ticket-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        release:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        ls:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        show:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        watch:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        wait:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        break:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        server:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        doctor:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        nodes:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        acl:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        bench:--url-file) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        bench:--output) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        bench:--charts) compopt -o filenames; COMPREPLY=($(compgen -d -- "$current")); return ;;
    esac
    if [[ " $valued " == *" $previous "* ]]; then
        return
    fi
    case $choices in
        FILES)
            compopt -o filenames
            COMPREPLY=($(compgen -W "$options" -- "$current") $(compgen -f -- "$current"))
            ;;
        *) COMPREPLY=($(compgen -W "$options $choices" -- "$current")) ;;
    esac
}

complete -F _holdfast holdfast
