%% Run inside the broker when it starts. Serves Erlang expressions on a loopback
%% port, for a client that knows the secret: rabbitmqctl does the same, but takes
%% the better part of a second a call. Request: 4 bytes of length, then secret and
%% expressions. Answer: 4 bytes of length, 0 or 1 (raised), the value as a term.
{Port, Secret} = {list_to_integer(os:getenv("TOWPATH_LAB_EVAL_PORT")), list_to_binary(os:getenv("TOWPATH_LAB_EVAL_SECRET"))}.
Evaluate = fun(Source) ->
    try
        {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Source)),
        {ok, Expressions} = erl_parse:parse_exprs(Tokens),
        {value, Value, _} = erl_eval:exprs(Expressions, []),
        [0, io_lib:format("~0tp", [Value])]
    catch Class:Reason -> [1, io_lib:format("~0tp", [{Class, Reason}])]
    end
end.
Serve = fun Loop(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, <<Given:(byte_size(Secret))/binary, Source/binary>>} when Given =:= Secret ->
            ok = gen_tcp:send(Socket, unicode:characters_to_binary(Evaluate(Source))),
            Loop(Socket);
        _ -> gen_tcp:close(Socket)
    end
end.
Accept = fun Loop(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Server = spawn(fun() -> receive go -> Serve(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Server),
    Server ! go,
    Loop(Listener)
end.
spawn(fun() ->
    {ok, Listener} = gen_tcp:listen(Port, [binary, {packet, 4}, {active, false}, {reuseaddr, true}, {ip, {127, 0, 0, 1}}]),
    Accept(Listener)
end).
